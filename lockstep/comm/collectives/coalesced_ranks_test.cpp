#include "lockstep/comm/collectives/coalesced.h"

#include "lockstep/base/error.h"
#include "lockstep/comm/collectives/collectives.h"
#include "testing/buffers.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

RANKS_TEST(Coalesced, EveryBufferHoldsItsSum, Ranks(1, 2, 3, 4), EveryBackend()) {
  std::vector<std::vector<float>> data;
  std::vector<std::span<float>> buffers;
  data.reserve(5);
  for (const std::size_t count : {1U, 0U, 1000U, 7U, 50000U}) {
    const auto value = static_cast<float>(rank() + static_cast<int>(data.size()));
    buffers.emplace_back(data.emplace_back(count, value));
  }
  comm::all_reduce_coalesced(world(), buffers);
  for (int i = 0; i < 5; ++i) {
    const auto sum = static_cast<float>(size() * (size() - 1) / 2 + i * size());
    EXPECT_TRUE(all_are(data[static_cast<std::size_t>(i)], sum));
  }
  Work work = comm::all_reduce_coalesced(world(), buffers, ReduceOp::MAX, /*async_op=*/true);
  while (!work.is_completed()) {
  }
  EXPECT_TRUE(all_are(data[0], static_cast<float>(size() * (size() - 1) / 2)));
  comm::all_reduce_coalesced(world(), std::vector<std::span<float>>());
}

RANKS_TEST(Coalesced, RefusesWhatAllReduceRefuses, Ranks(1, 2)) {
  std::vector<int> x(3);
  EXPECT_THAT([&] { comm::all_reduce_coalesced(world(), std::vector<std::span<int>>{x}, ReduceOp::AVG); },
              ThrowsMessage<InvalidArgument>(HasSubstr("int32")));
}

RANKS_TEST(BatchIsendIrecv, ARing, Ranks(2, 3, 4), BackendsWithPeers()) {
  const int next = (rank() + 1) % size();
  const int before = (rank() + size() - 1) % size();
  const std::vector<int> mine(1000, rank());
  std::vector<int> theirs(1000, -1);
  auto works = comm::batch_isend_irecv(world(), {comm::send_op(std::span<const int>(mine), next, 3),
                                                 comm::recv_op(std::span(theirs), before, 3)});
  ASSERT_EQ(works.size(), 2U);
  for (Work& work : works) work.wait();
  EXPECT_TRUE(all_are(theirs, before));
}

RANKS_TEST(BatchIsendIrecv, ChecksAllBeforeItStartsAny, Ranks(2)) {
  int value = rank();
  const auto good = comm::send_op(std::span<const int>(&value, 1), 1 - rank());
  EXPECT_THAT(
      [&] {
        comm::batch_isend_irecv(world(), {good, comm::recv_op(std::span(&value, 1), 2)});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("source 2")));
  EXPECT_THAT(
      [&] {
        comm::batch_isend_irecv(world(), {good, comm::recv_op(std::span(&value, 1), rank())});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("this rank itself")));
  // If one of the messages had been started, this receive would get it instead of the float.
  const float sent = 1.5F;
  float received = 0;
  Work work = comm::isend(world(), std::span<const float>(&sent, 1), 1 - rank());
  comm::recv(world(), std::span(&received, 1), 1 - rank());
  work.wait();
  EXPECT_EQ(received, 1.5F);
}

}  // namespace
}  // namespace lockstep

// Every function that takes or returns a rank means the same: a rank of the whole job, or as GroupRank a rank
// of the group. These tests use spans and objects; tensor/subgroup_ranks_test.cpp uses tensors.
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/collectives/coalesced.h"
#include "lockstep/comm/collectives/collectives.h"
#include "lockstep/comm/collectives/objects.h"
#include "lockstep/job/groups.h"
#include "lockstep/job/job.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

std::string text_of(int rank) { return str("of rank ", rank); }

// A group of three ranks, none of which has the same number in the group and in the job.
ProcessGroup last_pair() { return new_group({1, 2}); }

// The root as a rank of the job and as a rank of the group.
std::vector<std::pair<Peer, int>> roots() { return {{1, 1}, {2, 2}, {GroupRank{0}, 1}, {GroupRank{1}, 2}}; }

RANKS_TEST(GlobalRanks, RootsOfObjects, Ranks(3), Backends("shm", "tcp")) {
  const ProcessGroup group = last_pair();
  if (!group.is_member()) return;
  ASSERT_THAT(group.ranks(), ElementsAre(1, 2));
  for (const auto& [root, global] : roots()) {
    std::string text = text_of(rank());
    comm::broadcast_object(group, text, root);
    EXPECT_EQ(text, text_of(global));
    json value = rank();
    comm::broadcast_object(group, value, root);
    EXPECT_EQ(value, global);

    const bool is_root = rank() == global;
    const auto all = comm::gather_object(group, text_of(rank()), root);
    const auto values = comm::gather_object(group, json(rank()), root);
    if (is_root) {
      EXPECT_THAT(all, ElementsAre(text_of(1), text_of(2)));
      EXPECT_THAT(values, ElementsAre(1, 2));
    } else {
      EXPECT_THAT(all, IsEmpty());
      EXPECT_THAT(values, IsEmpty());
    }
    using Texts = std::vector<std::string>;
    using Values = std::vector<json>;
    EXPECT_EQ(comm::scatter_object(group, is_root ? Texts{text_of(1), text_of(2)} : Texts(), root),
              text_of(rank()));
    EXPECT_EQ(comm::scatter_object(group, is_root ? Values{1, 2} : Values(), root), rank());
  }
}

RANKS_TEST(GlobalRanks, MessagesOfObjects, Ranks(3), Backends("shm", "tcp")) {
  const ProcessGroup group = last_pair();
  if (rank() == 1) {
    comm::send_object(group, text_of(1), 2);
    comm::send_object(group, text_of(1), GroupRank{1});
    comm::send_object(group, json(1), 2);
  }
  if (rank() == 2) {
    const auto first = comm::recv_object(group, ANY_SOURCE);
    EXPECT_EQ(first.source, 1);
    EXPECT_EQ(first.bytes, text_of(1));
    EXPECT_EQ(comm::recv_object(group, 1).source, 1);
    EXPECT_EQ(comm::recv_json_object(group, GroupRank{0}), 1);
  }
}

RANKS_TEST(GlobalRanks, RootsOfSpans, Ranks(3), Backends("shm", "tcp")) {
  const ProcessGroup group = last_pair();
  if (!group.is_member()) return;
  for (const auto& [root, global] : roots()) {
    const bool is_root = rank() == global;
    int value = rank();
    comm::broadcast(group, std::span(&value, 1), root);
    EXPECT_EQ(value, global);
    int sum = rank();
    comm::reduce(group, std::span(&sum, 1), root);
    EXPECT_EQ(sum, is_root ? 3 : rank());
    const int mine = rank();
    std::vector<int> all(is_root ? 2 : 0);
    comm::gather(group, std::span<const int>(&mine, 1), std::span(all), root);
    if (is_root) EXPECT_THAT(all, ElementsAre(1, 2));
    int part = 0;
    comm::scatter(group, std::span(&part, 1), std::span<const int>(all), root);
    EXPECT_EQ(part, rank());
  }
}

RANKS_TEST(GlobalRanks, MessagesOfSpans, Ranks(3), Backends("shm", "tcp")) {
  const ProcessGroup group = last_pair();
  int value = rank();
  if (rank() == 1) {
    comm::send(group, std::span<const int>(&value, 1), 2);
    comm::isend(group, std::span<const int>(&value, 1), GroupRank{1}).wait();
    comm::batch_isend_irecv(group, {comm::send_op(std::span<const int>(&value, 1), 2)})[0].wait();
  }
  if (rank() == 2) {
    EXPECT_EQ(comm::recv(group, std::span(&value, 1), 1), 1);
    EXPECT_EQ(value, 1);
    Work work = comm::irecv(group, std::span(&value, 1), ANY_SOURCE);
    work.wait();
    EXPECT_EQ(work.source_rank(), 1);
    Work last = comm::batch_isend_irecv(group, {comm::recv_op(std::span(&value, 1), GroupRank{0})})[0];
    last.wait();
    EXPECT_EQ(last.source_rank(), 1);
  }
}

RANKS_TEST(GlobalRanks, WhoIsNotInTheGroupIsRefusedWithBothNumbers, Ranks(3), Backends("shm")) {
  const ProcessGroup group = last_pair();
  if (!group.is_member()) return;
  std::string text;
  const auto refused = AllOf(HasSubstr("0 is not a rank of the group, whose global ranks are 1, 2"),
                             HasSubstr("write GroupRank{0}"));
  EXPECT_THAT([&] { comm::broadcast_object(group, text, 0); }, ThrowsMessage<InvalidArgument>(refused));
  EXPECT_THAT([&] { comm::gather_object(group, text, 0); }, ThrowsMessage<InvalidArgument>(refused));
  EXPECT_THAT([&] { comm::scatter_object(group, std::vector<std::string>(), 0); },
              ThrowsMessage<InvalidArgument>(refused));
  EXPECT_THAT([&] { comm::send_object(group, text, 0); }, ThrowsMessage<InvalidArgument>(refused));
  EXPECT_THAT([&] { comm::recv_object(group, 0); }, ThrowsMessage<InvalidArgument>(refused));
  int value = 0;
  EXPECT_THAT([&] { comm::broadcast(group, std::span(&value, 1), 0); },
              ThrowsMessage<InvalidArgument>(refused));
  EXPECT_THAT([&] { comm::broadcast(group, std::span(&value, 1)); }, ThrowsMessage<InvalidArgument>(refused));
}

// A report about ranks of the group also has their ranks in the job.
RANKS_TEST(GlobalRanks, AMonitoredBarrierNamesBoth, Ranks(3), Backends("shm")) {
  const ProcessGroup group = last_pair();
  if (rank() == 1) {
    EXPECT_THAT([&] { comm::monitored_barrier(group, std::chrono::milliseconds(50)); },
                ThrowsMessage<Timeout>(HasSubstr("rank 1 (rank 2 of the world)")));
  }
}

}  // namespace
}  // namespace lockstep

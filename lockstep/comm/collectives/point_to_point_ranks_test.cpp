#include "lockstep/comm/collectives/point_to_point.h"

#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/comm/collectives/barrier.h"
#include "testing/buffers.h"
#include "testing/ranks.h"
#include "testing/signs.h"

namespace lockstep {
namespace {

using reference::sample;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

template <typename T> void check_message(const ProcessGroup& group, Memory memory, std::size_t count) {
  SCOPED_TRACE(
      str(name_of(dtype_of<T>()), ", ", count, " elements, ", MEMORY_NAMES[static_cast<int>(memory)]));
  const Buffer<T> x(group, memory, count);
  if (group.rank() == 0) {
    x.fill([&](std::size_t i) { return sample<T>(0, i, count); });
    comm::send(group, std::span<const T>(x.span()), 1);
  } else {
    x.fill([&](std::size_t) { return sample<T>(1, 0); });
    EXPECT_EQ(comm::recv(group, x.span(), 0), 0);
  }
  EXPECT_EQ(x.difference([&](std::size_t i) { return sample<T>(0, i, count); }), "");
}

RANKS_TEST(PointToPoint, EveryDtypeAndMemory, Ranks(2), BackendsWithPeers()) {
  reference::for_each_dtype([&]<typename T>() {
    for (const Memory memory : MEMORIES) {
      for (const std::size_t count : {0, 1, 63, 64, 65, 1000, reference::THOROUGH ? 100003 : 2000})
        check_message<T>(world(), memory, count);
    }
  });
}

RANKS_TEST(PointToPoint, MessagesOfZeroToFourMebibytes, Ranks(2), BackendsWithPeers()) {
  for (std::size_t bytes = 0; bytes <= std::size_t{4} << 20U; bytes = bytes == 0 ? 1 : 4 * bytes) {
    check_message<std::uint8_t>(world(), Memory::PRIVATE, bytes);
    check_message<std::uint8_t>(world(), Memory::PRIVATE, bytes + 1);
  }
}

// Every rank sends to every other rank, and receives from every other rank.
RANKS_TEST(PointToPoint, EveryPairInBothDirections, Ranks(2, 3, 4), BackendsWithPeers()) {
  std::vector<Work> works;
  std::vector<std::vector<int>> received;
  std::vector<std::vector<int>> sent;
  received.reserve(4);
  sent.reserve(4);
  for (int r = 0; r < size(); ++r) {
    received.emplace_back(1000, -1);
    sent.emplace_back(1000, 10 * rank() + r);
    if (r == rank()) continue;
    works.push_back(comm::irecv(world(), std::span(received.back()), r, /*tag=*/3));
    works.push_back(comm::isend(world(), std::span<const int>(sent.back()), r, /*tag=*/3));
  }
  for (Work& work : works) work.wait();
  for (int r = 0; r < size(); ++r) {
    EXPECT_TRUE(all_are(received[static_cast<std::size_t>(r)], r == rank() ? -1 : 10 * r + rank()));
  }
}

RANKS_TEST(PointToPoint, MessagesWithOneTagArriveInOrder, Ranks(2), BackendsWithPeers()) {
  for (int i = 0; i < 1000; ++i) {
    int value = i;
    if (rank() == 0) {
      comm::send(world(), std::span<const int>(&value, 1), 1);
    } else {
      comm::recv(world(), std::span(&value, 1), 0);
      ASSERT_EQ(value, i);
    }
  }
}

// Sent with tags 0, 1, 2, ...; received in reverse order, and each tag twice in the order sent.
RANKS_TEST(PointToPoint, TagsMayBeReceivedInAnyOrder, Ranks(2), BackendsWithPeers()) {
  constexpr int TAGS = 8;
  for (int round = 0; round < 20; ++round) {
    if (rank() == 0) {
      for (int i = 0; i < 2 * TAGS; ++i) comm::send(world(), std::span<const int>(&i, 1), 1, i % TAGS);
    } else {
      for (int i = 2 * TAGS - 1; i >= 0; --i) {
        int value = -1;
        comm::recv(world(), std::span(&value, 1), 0, i % TAGS);
        ASSERT_EQ(value, i >= TAGS ? i - TAGS : i + TAGS) << "tag " << i % TAGS;
      }
    }
  }
}

// The sender is done long before the receiver calls: its buffer is free, and the messages wait.
RANKS_TEST(PointToPoint, SendDoesNotWaitForTheReceiver, Ranks(2), BackendsWithPeers()) {
  constexpr int MESSAGES = 30;
  std::vector<float> x(1000);
  if (rank() == 0) {
    for (int i = 0; i < MESSAGES; ++i) {
      std::fill(x.begin(), x.end(), static_cast<float>(i));
      comm::send(world(), std::span<const float>(x), 1);
    }
    std::fill(x.begin(), x.end(), -1.0F);
  }
  comm::barrier(world());
  for (int i = 0; i < MESSAGES && rank() == 1; ++i) {
    comm::recv(world(), std::span(x), 0);
    ASSERT_TRUE(all_are(x, static_cast<float>(i)));
  }
}

// More messages than fit between two ranks: isend returns, and the rest follow as the receiver takes them.
RANKS_TEST(PointToPoint, AHundredSendsBeforeTheFirstReceive, Ranks(2), BackendsWithPeers()) {
  std::vector<int> values(100);
  std::iota(values.begin(), values.end(), 0);
  std::vector<Work> works;
  if (rank() == 0) {
    for (const int& value : values) works.push_back(comm::isend(world(), std::span<const int>(&value, 1), 1));
  }
  comm::barrier(world());
  for (int i = 0; i < 100 && rank() == 1; ++i) {
    int value = -1;
    comm::recv(world(), std::span(&value, 1), 0);
    ASSERT_EQ(value, i);
  }
  for (Work& work : works) work.wait();
}

// Like above, but received with the last tag first, so none of the messages that fit is the expected one.
RANKS_TEST(PointToPoint, AHundredTagsReceivedBackwards, Ranks(2), BackendsWithPeers()) {
  std::vector<int> values(100);
  std::iota(values.begin(), values.end(), 0);
  std::vector<Work> works;
  for (int tag = 0; tag < 100 && rank() == 0; ++tag) {
    works.push_back(
        comm::isend(world(), std::span<const int>(&values[static_cast<std::size_t>(tag)], 1), 1, tag));
  }
  for (int tag = 99; tag >= 0 && rank() == 1; --tag) {
    int value = -1;
    comm::recv(world(), std::span(&value, 1), 0, tag);
    ASSERT_EQ(value, tag);
  }
  for (Work& work : works) work.wait();
}

RANKS_TEST(PointToPoint, ReceivesPostedFirstAreServedInOrder, Ranks(2), BackendsWithPeers()) {
  constexpr std::size_t MESSAGES = 50;
  std::vector<int> values(MESSAGES, -1);
  std::vector<Work> works;
  for (std::size_t i = 0; i < MESSAGES && rank() == 1; ++i) {
    works.push_back(comm::irecv(world(), std::span(&values[i], 1), 0));
  }
  comm::barrier(world());
  for (int i = 0; i < static_cast<int>(MESSAGES) && rank() == 0; ++i) {
    comm::send(world(), std::span<const int>(&i, 1), 1);
  }
  for (auto work = works.rbegin(); work != works.rend(); ++work) work->wait();
  for (std::size_t i = 0; i < MESSAGES && rank() == 1; ++i) EXPECT_EQ(values[i], static_cast<int>(i));
}

// 0 -> 1 -> 2 -> ... -> 0, each message one larger.
RANKS_TEST(PointToPoint, ARingOfBlockingCalls, Ranks(2, 3, 4), BackendsWithPeers()) {
  const int next = (rank() + 1) % size();
  const int before = (rank() + size() - 1) % size();
  int token = 0;
  for (int round = 0; round < 100; ++round) {
    if (rank() != 0) comm::recv(world(), std::span(&token, 1), before);
    ++token;
    comm::send(world(), std::span<const int>(&token, 1), next);
    if (rank() == 0) comm::recv(world(), std::span(&token, 1), before);
  }
  EXPECT_EQ(token, rank() == 0 ? 100 * size() : 99 * size() + rank() + 1);
}

// A message can be received after its sender has left the group.
RANKS_TEST(PointToPoint, MessagesOutliveTheirSender, Ranks(2), BackendsWithPeers()) {
  std::vector<int> x(
      backend_name() == "tcp" || backend_name() == "mpi" || backend_name() == "gloo" ? 16384 : 100000,
      7 * (1 - rank()));  // over tcp, larger messages wait until the receiver asks for them
  if (rank() == 0) {
    comm::send(world(), std::span<const int>(x), 1);
    comm::send(world(), std::span<const int>(x), 1);
    world().close();
    return;
  }
  comm::recv(world(), std::span(x), 0);
  EXPECT_THAT([&] { comm::barrier(world()); }, ThrowsMessage<PeerLost>(HasSubstr("has left the group")));
  EXPECT_TRUE(all_are(x, 7));
}

// Unlike over shared memory, over tcp a message stays with its sender until the receiver asks for it if it
// has more than 64 KiB, or if 1 MiB is already unreceived.
RANKS_TEST(PointToPoint, OverTcpLargeMessagesWaitForTheirReceiver, Ranks(2), Backends("tcp", "gloo")) {
  constexpr std::size_t LIMIT = 64 << 10;
  constexpr int MANY = 100;
  const std::vector<std::uint8_t> small(LIMIT, 1);
  const std::vector<std::uint8_t> large(LIMIT + 1, 2);
  std::vector<Work> works;
  if (rank() == 0) {
    works.push_back(comm::isend(world(), std::span<const std::uint8_t>(large), 1, /*tag=*/1));
    for (int i = 0; i < MANY; ++i)
      works.push_back(comm::isend(world(), std::span<const std::uint8_t>(small), 1));
  }
  comm::barrier(world());  // all messages that are sent at once have been sent
  if (rank() == 0) {
    EXPECT_FALSE(works[0].is_completed());
    EXPECT_TRUE(works[1].is_completed());
    EXPECT_FALSE(works[MANY].is_completed());  // 1 MiB is unreceived
  }
  comm::barrier(world());
  std::vector<std::uint8_t> x(LIMIT + 1);
  if (rank() == 1) {
    comm::recv(world(), std::span(x), 0, /*tag=*/1);
    EXPECT_TRUE(all_are<std::uint8_t>(x, 2));
  }
  for (int i = 0; i < MANY && rank() == 1; ++i) comm::recv(world(), std::span(x).first(LIMIT), 0);
  for (Work& work : works) work.wait();
}

// Also directly after calls in which the owner served the connections itself. From the receive until rank 0's
// send has returned, which waits for the receive, rank 1 makes no call of the library.
RANKS_TEST(PointToPoint, OverTcpAReceiveGoesOnWithoutItsOwner, Ranks(2), Backends("tcp", "gloo")) {
  const testing::Signs signs(world());
  std::vector<float> x(1 << 18);
  for (int round = 0; round < 20; ++round) {
    comm::barrier(world());
    if (rank() == 0) {
      std::fill(x.begin(), x.end(), static_cast<float>(round));
      comm::send(world(), std::span<const float>(x), 1);
      signs.give(str("sent ", round));
    } else {
      Work receive = comm::irecv(world(), std::span(x), 0);
      signs.await(str("sent ", round));
      receive.wait();
      ASSERT_TRUE(all_are(x, static_cast<float>(round)));
    }
  }
  comm::barrier(world());
}

RANKS_TEST(PointToPoint, DifferentSizesOrTypesAreAMismatchOnBothRanks, Ranks(2), BackendsWithPeers()) {
  const auto disagree = [&] {
    std::vector<float> x(10);
    if (rank() == 0) comm::send(world(), std::span<const float>(x), 1, 5);
    if (rank() == 1) comm::recv(world(), std::span(x).first(9), 0, 5);
    comm::barrier(world());  // the sender did not wait, and learns of it here
  };
  EXPECT_THAT(disagree, ThrowsMessage<Mismatch>(
                            AllOf(HasSubstr("float32[10]"), HasSubstr("float32[9]"), HasSubstr("tag 5"))));
}

RANKS_TEST(PointToPoint, RefusesBadPeersAndTags, Ranks(1, 2), EveryBackend()) {
  float x = 0;
  const std::span<const float> message(&x, 1);
  EXPECT_THAT([&] { comm::send(world(), message, rank()); },
              ThrowsMessage<InvalidArgument>(HasSubstr("this rank itself")));
  EXPECT_THAT([&] { comm::recv(world(), std::span(&x, 1), rank()); },
              ThrowsMessage<InvalidArgument>(HasSubstr("this rank itself")));
  EXPECT_THAT([&] { comm::send(world(), message, size()); },
              ThrowsMessage<InvalidArgument>(HasSubstr(str("destination ", size()))));
  EXPECT_THAT([&] { comm::recv(world(), std::span(&x, 1), -2); },
              ThrowsMessage<InvalidArgument>(HasSubstr("source -2")));
  if (size() == 2) {
    EXPECT_THAT([&] { comm::send(world(), message, 1 - rank(), -1); },
                ThrowsMessage<InvalidArgument>(HasSubstr("tag -1")));
  }
}

}  // namespace
}  // namespace lockstep

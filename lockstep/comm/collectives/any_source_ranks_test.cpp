// Receives from any source.
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/comm/collectives/barrier.h"
#include "lockstep/comm/collectives/point_to_point.h"
#include "lockstep/os/process.h"
#include "lockstep/os/process_handle.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

int receive(const ProcessGroup& group, int source, int tag, int* value) {
  return comm::recv(group, std::span(value, 1), source, tag);
}

void give(const ProcessGroup& group, int destination, int tag, int value) {
  comm::send(group, std::span<const int>(&value, 1), destination, tag);
}

// Every rank sends its number to rank 0, which learns it from the value and from the returned source.
RANKS_TEST(AnySource, SaysWhoSent, Ranks(2, 3, 4), EveryBackend(), Except("nccl")) {
  for (int round = 0; round < 50; ++round) {
    if (rank() != 0) {
      give(world(), 0, 5, rank());
      continue;
    }
    std::multiset<int> seen;
    for (int i = 1; i < size(); ++i) {
      int value = -1;
      const int source = receive(world(), ANY_SOURCE, 5, &value);
      EXPECT_EQ(source, value);
      seen.insert(source);
    }
    // A fast rank may be a round ahead; the next test checks order and completeness
    EXPECT_EQ(seen.size(), static_cast<std::size_t>(size() - 1));
  }
  comm::barrier(world());
}

// Messages of one rank with one tag arrive in the order sent, whichever source the receive names.
RANKS_TEST(AnySource, KeepsTheOrderOfEachSender, Ranks(2, 3, 4), EveryBackend(), Except("nccl")) {
  constexpr int MESSAGES = 200;
  if (rank() != 0) {
    for (int i = 0; i < MESSAGES; ++i) give(world(), 0, 1, i);
    return;
  }
  std::vector<int> next(static_cast<std::size_t>(size()), 0);
  for (int i = 0; i < MESSAGES * (size() - 1); ++i) {
    int value = -1;
    const int source = receive(world(), ANY_SOURCE, 1, &value);
    EXPECT_EQ(value, next[static_cast<std::size_t>(source)]++);
  }
  for (int r = 1; r < size(); ++r) EXPECT_EQ(next[static_cast<std::size_t>(r)], MESSAGES);
}

// A receive only gets messages with its tag.
RANKS_TEST(AnySource, LooksAtTheTag, Ranks(2, 3, 4), EveryBackend(), Except("nccl")) {
  if (rank() != 0) {
    give(world(), 0, 1, 100 + rank());
    give(world(), 0, 2, 200 + rank());
    return;
  }
  for (const int tag : {2, 1}) {
    std::set<int> values;
    for (int i = 1; i < size(); ++i) {
      int value = -1;
      const int source = receive(world(), ANY_SOURCE, tag, &value);
      EXPECT_EQ(value, 100 * tag + source);
      values.insert(value);
    }
    EXPECT_EQ(values.size(), static_cast<std::size_t>(size() - 1));
  }
}

// A message goes to the first matching receive, in the order of the calls.
RANKS_TEST(AnySource, ServesReceivesInTheOrderOfTheirCalls, Ranks(2), EveryBackend(), Except("nccl")) {
  if (rank() == 1) {
    comm::barrier(world());
    for (int i = 0; i < 4; ++i) give(world(), 0, 3, i);
    return;
  }
  int values[4] = {-1, -1, -1, -1};
  std::vector<Work> works;
  for (int i = 0; i < 4; ++i) {
    const int source = i % 2 == 0 ? ANY_SOURCE : 1;
    works.push_back(comm::irecv(world(), std::span(&values[i], 1), source, 3));
  }
  comm::barrier(world());
  for (int i = 3; i >= 0; --i) works[static_cast<std::size_t>(i)].wait();
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(values[i], i);
    EXPECT_EQ(works[static_cast<std::size_t>(i)].source_rank(), 1);
  }
}

RANKS_TEST(AnySource, NeedsAnotherRank, Ranks(1), EveryBackend(), Except("nccl")) {
  int value = 0;
  EXPECT_THAT([&] { receive(world(), ANY_SOURCE, 0, &value); },
              ThrowsMessage<InvalidArgument>(HasSubstr("no other rank")));
}

// The last rank sends its number, leaves and ends its process. Only then rank 1 sends its own. Not over mpi,
// where the processes run all tests one after another, so none may end.
RANKS_TEST(AnySource, ARankThatHasLeftIsNotMissed, Ranks(3), Backends("shm", "tcp", "gloo")) {
  if (rank() == 2) {
    give(world(), 1, 3, current_pid());
    return give(world(), 0, 5, rank());
  }
  if (rank() == 1) {
    int pid = 0;
    receive(world(), 2, 3, &pid);
    while (ProcessHandle(pid).alive()) yield_cpu();
    return give(world(), 0, 5, rank());
  }
  std::set<int> sources;
  for (int i = 0; i < 2; ++i) {
    int value = 0;
    sources.insert(receive(world(), ANY_SOURCE, 5, &value));
    EXPECT_EQ(sources.count(value), 1U);
  }
  EXPECT_EQ(sources, (std::set<int>{1, 2}));
}

}  // namespace
}  // namespace lockstep

// Groups of some of the ranks: that they are right, independent of each other, and leave nothing behind.
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/backends/shared/engine.h"
#include "lockstep/comm/collectives/collectives.h"
#include "testing/ranks.h"
#include "testing/reference.h"
#include "testing/sums.h"

namespace lockstep {
namespace {

using harness::sum_over;

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// The group of the part that this rank is in; not a member without one.
ProcessGroup split(const ProcessGroup& parent, const std::vector<std::vector<int>>& parts,
                   const std::string& name, const GroupOptions& options = {}) {
  std::vector<int> mine;
  for (const auto& part : parts) {
    if (std::find(part.begin(), part.end(), parent.rank()) == part.end()) continue;
    for (const int r : part) mine.push_back(parent.ranks()[static_cast<std::size_t>(r)]);
  }
  return {parent.backend().split(parts, name, options), mine};
}

std::vector<std::vector<int>> even_and_odd(int size) {
  std::vector<std::vector<int>> parts(size == 1 ? 1 : 2);
  for (int r = 0; r < size; ++r) parts[static_cast<std::size_t>(r % 2)].push_back(r);
  return parts;
}

Arena& arena_of(const ProcessGroup& group) {
  return dynamic_cast<shared::SharedEngine&>(group.backend()).arena();
}

bool has_arena(const ProcessGroup& group) {
  return dynamic_cast<const shared::SharedEngine*>(&group.backend()) != nullptr;
}

RANKS_TEST(Split, EveryPartIsAGroup, Ranks(1, 2, 3, 4), EveryBackend()) {
  const auto parts = even_and_odd(size());
  const ProcessGroup group = split(world(), parts, "parity");
  const auto& mine = parts[static_cast<std::size_t>(rank() % 2)];
  EXPECT_EQ(group.rank(), rank() / 2);
  EXPECT_EQ(group.size(), static_cast<int>(mine.size()));
  EXPECT_EQ(group.backend().size(), group.size());
  EXPECT_EQ(group.name(), "parity");
  if (!backend_name().starts_with("hierarchical")) {
    EXPECT_EQ(group.backend_name(), world().backend_name());
  }
  EXPECT_EQ(sum_over(group, 10 + rank()), 10 * group.size() + std::accumulate(mine.begin(), mine.end(), 0));
  EXPECT_EQ(sum_over(world(), 1), size());
}

RANKS_TEST(Split, RanksAreInTheOrderOfTheList, Ranks(2, 3, 4), BackendsWithPeers()) {
  std::vector<int> backwards;
  for (int r = size(); r-- > 0;) backwards.push_back(r);
  const ProcessGroup group = split(world(), {backwards}, "backwards");
  EXPECT_EQ(group.rank(), size() - 1 - rank());
  int value = rank();
  comm::broadcast(group, std::span(&value, 1), GroupRank{0});
  EXPECT_EQ(value, size() - 1);
}

RANKS_TEST(Split, WhoIsInNoPartGetsNothing, Ranks(2, 3, 4), BackendsWithPeers()) {
  const ProcessGroup group = split(world(), {{1}}, "one");
  EXPECT_EQ(group.is_member(), rank() == 1);
  if (rank() == 1) {
    EXPECT_EQ(sum_over(group, 5), 5);
  }
  EXPECT_EQ(world().backend().split({}, "nobody", {}), nullptr);
  EXPECT_EQ(sum_over(world(), 1), size());
}

RANKS_TEST(Split, GroupsOfGroups, Ranks(4), BackendsWithPeers()) {
  const ProcessGroup three = split(world(), {{3, 1, 0}}, "three");
  if (rank() == 2) return;
  const ProcessGroup two = split(three, {{2, 0}}, "two");  // ranks 0 and 3 of the world
  if (rank() == 1) return three.close();                   // or the others could see a member die
  EXPECT_EQ(two.rank(), rank() == 0 ? 0 : 1);
  EXPECT_EQ(sum_over(two, rank()), 3);
  int value = rank();
  if (rank() == 0) comm::send(two, std::span<const int>(&value, 1), 3);
  if (rank() == 3) {
    EXPECT_EQ(comm::recv(two, std::span(&value, 1), 0), 0);
    EXPECT_EQ(value, 0);
  }
}

RANKS_TEST(Split, SharedMemoryOfOneGroupServesAll, Ranks(2, 3, 4), Backends("thread", "shm")) {
  constexpr std::size_t COUNT = 100000;
  const ProcessGroup group = split(world(), even_and_odd(size()), "parity");
  const auto memory = world().allocate_shared(COUNT * sizeof(float));
  const std::size_t blocks = arena_of(group).allocated_blocks();
  const std::span<float> x(static_cast<float*>(memory.get()), COUNT);
  std::fill(x.begin(), x.end(), static_cast<float>(1 + rank() % 2));
  Work work = comm::all_reduce(group, x, ReduceOp::SUM, /*async_op=*/true);
  EXPECT_EQ(arena_of(group).allocated_blocks(), blocks) << "the tensor was copied";
  work.wait();
  EXPECT_THAT(x, ::testing::Each(static_cast<float>(group.size() * (1 + rank() % 2))));
  comm::barrier(world());
}

struct Usage {
  std::size_t reserved;
  std::size_t blocks;
  std::ptrdiff_t descriptors;
  long resident_kb;
};

// Of the page tables: /proc/self/statm adds up counters of the CPUs, and may be off by pages of each.
long resident_kb() {
  std::ifstream sizes("/proc/self/smaps_rollup");
  for (std::string line; std::getline(sizes, line);) {
    if (line.starts_with("Rss:")) return std::stol(line.substr(4));
  }
  return 0;
}

Usage usage(const ProcessGroup& group) {
  const bool arena = has_arena(group);
  return {arena ? arena_of(group).reserved_bytes() : 0, arena ? arena_of(group).allocated_blocks() : 0,
          std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                        std::filesystem::directory_iterator()),
          resident_kb()};
}

RANKS_TEST(Split, AThousandTimesWithoutGrowth, Ranks(2, 4), BackendsWithPeers()) {
  constexpr int ROUNDS = reference::THOROUGH ? 1000 : 200;
  constexpr long MORE_KB = 512;  // 0.5 KiB a round
  std::vector<Usage> usages;     // every hundred rounds
  for (int round = 0; round <= ROUNDS; ++round) {
    const bool mixes =
        backend_name().starts_with("hierarchical");  // ranks of one machine with one of another
    const ProcessGroup group = split(
        world(), mixes ? std::vector<std::vector<int>>{{0, 1, 2}, {3}} : even_and_odd(size()), "parity");
    std::vector<int> x(1000, 1);
    comm::broadcast(group, std::span(x), GroupRank{round % group.size()});
    comm::all_reduce(group, std::span(x));
    ASSERT_EQ(x[999], group.size());
    if (group.size() == 2 && group.rank() == round % 2)
      comm::send(group, std::span<const int>(x), GroupRank{1 - round % 2});
    if (group.size() == 2 && group.rank() != round % 2) comm::recv(group, std::span(x), GroupRank{round % 2});
    group.close();
    if (round % 100 != 0) continue;
    comm::barrier(world());
    if (backend_name() != "thread" || rank() == 0) usages.push_back(usage(world()));  // of a process
    comm::barrier(world());
  }
  if (usages.empty()) return;
  std::string resident;
  for (const Usage& each : usages) resident += str(" ", each.resident_kb);
  EXPECT_EQ(usages.back().reserved, usages[1].reserved);
  EXPECT_LE(usages.back().blocks, usages[1].blocks + 8);  // what the last rounds have left
  EXPECT_EQ(usages.back().descriptors, usages[1].descriptors);
  if (!reference::SANITIZED)
    EXPECT_LE(usages.back().resident_kb, usages[1].resident_kb + MORE_KB) << resident;
}

// Nothing of a group is used again while a member has not left it.
RANKS_TEST(Split, LateLeaversAreWaitedFor, Ranks(2, 3), BackendsWithPeers()) {
  std::vector<ProcessGroup> kept;
  for (int round = 0; round < 50; ++round) {
    std::vector<int> all(static_cast<std::size_t>(size()));
    std::iota(all.begin(), all.end(), 0);
    const ProcessGroup group = split(world(), {all}, str("round ", round));
    EXPECT_EQ(sum_over(group, round), round * size());
    if (rank() == 0) group.close();
    if (rank() != 0) kept.push_back(group);
  }
  comm::barrier(world());  // a failure that one rank finds would end what another has not finished
  for (const ProcessGroup& group : kept) {
    EXPECT_THAT([&] { comm::barrier(group); }, ThrowsMessage<PeerLost>(HasSubstr("rank 0")));
    EXPECT_THAT([&] { comm::barrier(group); }, ThrowsMessage<PeerLost>(HasSubstr("has left the group")));
  }
  EXPECT_EQ(sum_over(world(), 1), size());
}

// Rank 1 looks at rank 0's line and leaves; then rank 0 uses the line again. Nothing but the leaving puts the
// two in order (the flags are relaxed on purpose): ThreadSanitizer sees whether that is enough.
RANKS_TEST(Split, WhatALeaverHasLookedAtIsUsedAgain, Ranks(3), Backends("thread")) {
  static std::atomic<int> left = 0;
  const ProcessGroup group = split(world(), {{0, 1, 2}}, "short");
  int x = rank();
  std::vector<int> all(rank() == 1 ? 3 : 0);
  if (rank() < 2) {
    const Work never = comm::gather(group, std::span<const int>(&x, 1), std::span(all), 1, /*async_op=*/true);
    if (rank() == 0) comm::send(world(), std::span<const int>(&x, 1), 1);
    if (rank() == 1) comm::recv(world(), std::span(&x, 1), 0);
    EXPECT_EQ(never.is_completed(), rank() == 0);  // rank 2 does not come
    // Never received: as long as rank 0 may do so, rank 1 has left, but is not gone, which would put the two
    // in order as well.
    if (rank() == 1) comm::isend(group, std::span<const int>(&x, 1), 0);
  }
  if (rank() != 0) {
    group.close();
    left.fetch_add(1, std::memory_order_relaxed);
  } else {
    while (left.load(std::memory_order_relaxed) < 2) std::this_thread::yield();
    for (std::uint64_t i = 0; i < 2 * shared::SLOTS; ++i) comm::broadcast(group, std::span(&x, 1), 0);
  }
  comm::barrier(world());
}

RANKS_TEST(Split, CallsAfterCloseAreRefused, Ranks(2), BackendsWithPeers()) {
  const ProcessGroup group = split(world(), {{0, 1}}, "pair");
  std::vector<float> x(10, 1);
  Work work = comm::all_reduce(group, std::span(x), ReduceOp::SUM, /*async_op=*/true);
  work.wait();
  Work never = comm::irecv(group, std::span(x), 1 - rank());
  comm::barrier(group);
  group.close();
  comm::barrier(world());
  // The control block is in use for something else now.
  const ProcessGroup other = split(world(), {{1, 0}}, "other pair");
  EXPECT_EQ(sum_over(other, 1), 2);
  work.wait();
  for (int i = 0; i < 2; ++i) {
    // Over tcp the other rank may have been first: then it is PeerLost, because it has left the group.
    EXPECT_THAT([&] { comm::barrier(group); }, ThrowsMessage<Error>(HasSubstr("left the group")));
    EXPECT_THAT([&] { never.wait(); }, ThrowsMessage<Error>(HasSubstr("left the group")));
    EXPECT_TRUE(never.is_completed());
    group.abort("too late");
    group.close();
  }
  EXPECT_EQ(sum_over(other, 1), 2);
}

// The goodbye fails what still needs that rank, but not the barrier, whose messages came before it.
RANKS_TEST(Split, ALeaverFailsNothingThatHadItsMessages, Ranks(2), BackendsWithPeers()) {
  for (int round = 0; round < 20; ++round) {
    const ProcessGroup group = split(world(), {{0, 1}}, "pair");
    int x = 0;
    Work never;
    if (rank() == 1) never = comm::irecv(group, std::span(&x, 1), 0);
    comm::barrier(group);
    if (rank() == 1)
      EXPECT_THAT([&] { never.wait(); }, ThrowsMessage<PeerLost>(HasSubstr("has left the group")));
    group.close();
  }
}

RANKS_TEST(Split, DisagreementNamesBoth, Ranks(2, 3), BackendsWithPeers()) {
  const bool last = rank() == size() - 1;
  EXPECT_THAT(
      [&] {
        split(world(), last ? std::vector<std::vector<int>>{{0}, {1}} : std::vector<std::vector<int>>{{0, 1}},
              "pair");
      },
      ThrowsMessage<Mismatch>(AllOf(HasSubstr("{0, 1}"), HasSubstr("{0}, {1}"), HasSubstr("rank 0"),
                                    HasSubstr(str("rank ", size() - 1)))));
  EXPECT_THAT([&] { comm::barrier(world()); }, ThrowsMessage<Mismatch>(HasSubstr("{0}, {1}")));
}

RANKS_TEST(Split, DifferentNamesAreADisagreement, Ranks(2), BackendsWithPeers()) {
  EXPECT_THAT(
      [&] {
        split(world(), {{0, 1}}, rank() == 0 ? "rows" : "columns");
      },
      ThrowsMessage<Mismatch>(AllOf(HasSubstr("rows"), HasSubstr("columns"))));
}

RANKS_TEST(Split, AbortEndsOneGroupOnly, Ranks(2, 4), BackendsWithPeers()) {
  const ProcessGroup group = split(world(), even_and_odd(size()), "parity");
  std::vector<int> all(static_cast<std::size_t>(size()));
  std::iota(all.begin(), all.end(), 0);
  const ProcessGroup doomed = split(world(), {all}, "doomed");
  if (rank() == 1) doomed.abort("enough");
  EXPECT_THAT(
      [&] {
        while (true) comm::barrier(doomed);
      },
      ThrowsMessage<Aborted>(HasSubstr("enough")));
  doomed.close();
  EXPECT_EQ(sum_over(group, 1), group.size());
  EXPECT_EQ(sum_over(world(), 1), size());
  // A stopped peer may wake up and write: the control block of the failed group is never used for another,
  // and still tells.
  for (int round = 0; round < 5; ++round) {
    const ProcessGroup next = split(world(), {all}, "next");
    EXPECT_EQ(sum_over(next, 1), size());
    next.close();
  }
  EXPECT_THAT([&] { comm::barrier(doomed); }, ThrowsMessage<Aborted>(HasSubstr("enough")));
}

RANKS_TEST(Split, ADeathFailsTheGroupsOfTheDead, Ranks(4), BackendsWithPeers(), Except("thread"), Dies({3})) {
  const ProcessGroup group = split(world(), {{0, 1}, {2, 3}}, "row");
  EXPECT_EQ(sum_over(group, 1), 2);
  if (rank() == 3) die();
  if (rank() == 2) {
    EXPECT_THAT([&] { comm::barrier(group); },
                ThrowsMessage<PeerLost>(AllOf(HasSubstr("rank 1 (rank 3 of the world, pid"),
                                              HasSubstr("rank 0 of 2 (rank 2 of the world)"))));
  } else {
    for (int i = 0; i < 100; ++i) EXPECT_EQ(sum_over(group, 1), 2);
  }
  EXPECT_THAT([&] { comm::barrier(world()); }, ThrowsMessage<PeerLost>(HasSubstr("rank 3 (pid")));
}

// More messages than there are letters for are pending in one group while this rank waits in another.
RANKS_TEST(Split, AWaitInOneGroupHelpsTheOthers, Ranks(2), BackendsWithPeers()) {
  constexpr int MESSAGES = 100;
  const ProcessGroup a = split(world(), {{0, 1}}, "a");
  const ProcessGroup b = split(world(), {{1, 0}}, "b");
  std::vector<int> numbers(MESSAGES);
  std::iota(numbers.begin(), numbers.end(), 0);
  if (rank() == 0) {
    std::vector<Work> works;
    for (const int& number : numbers) works.push_back(comm::isend(a, std::span<const int>(&number, 1), 1));
    comm::barrier(b);
    for (Work& work : works) work.wait();
  } else {
    for (const int number : numbers) {
      int received = -1;
      comm::recv(a, std::span(&received, 1), 0);
      EXPECT_EQ(received, number);
    }
    comm::barrier(b);
  }
}

RANKS_TEST(Split, OneThreadPerGroup, Ranks(1, 2, 3, 4), EveryBackend()) {
  if (!reference::THOROUGH && backend_name() == "shm") {
    std::fprintf(stderr,
                 "not run: ThreadSanitizer does not see what another process orders; `thread` is checked\n");
    return;
  }
  constexpr int GROUPS = 3;
  std::vector<int> all(static_cast<std::size_t>(size()));
  std::iota(all.begin(), all.end(), 0);
  std::vector<ProcessGroup> groups;
  for (int g = 0; g < GROUPS; ++g) {
    std::rotate(all.begin(), all.begin() + 1, all.end());
    groups.push_back(split(world(), {all}, str("group ", g)));
  }
  std::vector<int> wrong(GROUPS);
  {
    std::vector<std::jthread> threads;
    for (int g = 0; g < GROUPS; ++g) {
      threads.emplace_back([&, g] {
        const ProcessGroup& group = groups[static_cast<std::size_t>(g)];
        for (int i = 0; i < 200; ++i) {
          std::vector<int> x(static_cast<std::size_t>(1 + i * 37 % 5000), g + i);
          comm::all_reduce(group, std::span(x));
          wrong[static_cast<std::size_t>(g)] +=
              std::count(x.begin(), x.end(), (g + i) * size()) != static_cast<std::ptrdiff_t>(x.size()) ? 1
                                                                                                        : 0;
        }
      });
    }
  }
  EXPECT_THAT(wrong, ::testing::Each(0));
}

}  // namespace
}  // namespace lockstep

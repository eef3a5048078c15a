// One piece of memory for all ranks: each rank sees the other ranks' writes, and it lives until all have
// released it.
#include "lockstep/comm/collectives/common_memory.h"

#include <gmock/gmock.h>

#include <cstdint>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/comm/collectives/collectives.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr std::size_t WORDS = 5000;

std::uint64_t* words(const std::shared_ptr<void>& memory) {
  return static_cast<std::uint64_t*>(memory.get());
}

// Word i of round r.
std::uint64_t value(std::size_t i, std::uint64_t round) { return 3 * i + 100000 * round; }

std::size_t different_words(const std::shared_ptr<void>& memory, std::uint64_t round) {
  std::size_t different = 0;
  for (std::size_t i = 0; i < WORDS; ++i) different += words(memory)[i] == value(i, round) ? 0 : 1;
  return different;
}

RANKS_TEST(CommonMemory, IsOneForAllRanks, Ranks(1, 2, 3, 4), Backends("thread", "shm")) {
  const auto memory = comm::allocate_common(world(), WORDS * sizeof(std::uint64_t));
  ASSERT_NE(memory, nullptr);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.get()) % 64, 0U);
  for (std::size_t i = 0; i < WORDS; ++i) EXPECT_EQ(words(memory)[i], 0U);
  comm::barrier(world());
  for (std::uint64_t round = 1; round <= 10; ++round) {
    // each rank writes a share of the words
    for (std::size_t i = 0; i < WORDS; ++i) {
      if (static_cast<int>(i) % size() == rank()) words(memory)[i] = value(i, round);
    }
    comm::barrier(world());
    EXPECT_EQ(different_words(memory, round), 0U);
    comm::barrier(world());
  }
}

RANKS_TEST(CommonMemory, OfARankAlone, Ranks(1), Backends("self")) {
  const auto memory = comm::allocate_common(world(), WORDS * sizeof(std::uint64_t));
  ASSERT_NE(memory, nullptr);
  const std::uint64_t place = world().backend().place_of(memory.get()).value();
  EXPECT_EQ(world().backend().memory_of(0, place, 64).get(), memory.get());
}

// All ranks but `last` release the memory first.
void let_go_one_by_one(const ProcessGroup& group, int last) {
  auto memory = comm::allocate_common(group, WORDS * sizeof(std::uint64_t));
  const void* const place = memory.get();
  for (std::size_t i = 0; group.rank() == last && i < WORDS; ++i) words(memory)[i] = value(i, 7);
  comm::barrier(group);
  if (group.rank() != last) memory.reset();
  comm::barrier(group);
  const auto other = comm::allocate_common(group, WORDS * sizeof(std::uint64_t));
  EXPECT_NE(other.get(), place);
  if (group.rank() == last) {
    EXPECT_EQ(different_words(memory, 7), 0U);
    memory.reset();
  }
  comm::barrier(group);
  const auto third = comm::allocate_common(group, WORDS * sizeof(std::uint64_t));
  EXPECT_EQ(third.get(), place) << "the first one was not given back, last holder " << last;
}

RANKS_TEST(CommonMemory, IsTheHoldersUntilTheLastLetsGo, Ranks(2, 3, 4), Backends("thread", "shm")) {
  for (int last = 0; last < size(); ++last) {
    let_go_one_by_one(world(), last);
    comm::barrier(world());  // all ranks have released all memory
  }
}

RANKS_TEST(CommonMemory, IsZeroedEachTime, Ranks(1, 2, 3), Backends("thread", "shm")) {
  for (int round = 0; round < 3; ++round) {
    const auto memory = comm::allocate_common(world(), WORDS * sizeof(std::uint64_t));
    for (std::size_t i = 0; i < WORDS; ++i) ASSERT_EQ(words(memory)[i], 0U);
    comm::barrier(world());
    for (std::size_t i = 0; rank() == 0 && i < WORDS; ++i) words(memory)[i] = value(i, 5);
    comm::barrier(world());
  }
}

// Memory of rank 0 that it and one other rank of the group hold.
RANKS_TEST(CommonMemory, IsHeldByAsManyAsItsMakerSays, Ranks(2, 3, 4), Backends("thread", "shm")) {
  constexpr std::size_t BYTES = WORDS * sizeof(std::uint64_t);
  const int other = size() - 1;
  Backend& backend = world().backend();
  const void* before = nullptr;
  for (std::uint64_t round = 0; round < 3; ++round) {
    std::uint64_t place = 0;
    auto memory = rank() == 0 ? backend.make_common(BYTES, /*holders=*/2) : nullptr;
    if (rank() == 0) {
      EXPECT_EQ(memory.get(), round == 0 ? memory.get() : before) << "was not given back";
      before = memory.get();
      for (std::size_t i = 0; i < WORDS; ++i) words(memory)[i] = value(i, round);
      place = backend.place_of(memory.get()).value();
      memory.reset();  // before the other rank holds it
      comm::send(world(), std::span<const std::uint64_t>(&place, 1), other);
      EXPECT_NE(backend.make_common(BYTES, /*holders=*/1).get(), before);
    } else if (rank() == other) {
      comm::recv(world(), std::span(&place, 1), 0);
      memory = backend.hold_common(0, place, BYTES);
    }
    comm::barrier(world());
    EXPECT_EQ(rank() == other ? different_words(memory, round) : 0U, 0U);
    memory.reset();
    comm::barrier(world());
  }
}

RANKS_TEST(CommonMemory, OutlivesTheGroup, Ranks(2, 3), Backends("thread", "shm")) {
  const auto memory = comm::allocate_common(world(), WORDS * sizeof(std::uint64_t));
  for (std::size_t i = 0; rank() == 1 && i < WORDS; ++i) words(memory)[i] = value(i, 3);
  comm::barrier(world());
  world().close();
  EXPECT_EQ(different_words(memory, 3), 0U);
}

RANKS_TEST(CommonMemory, SizesAreCompared, Ranks(2, 3), Backends("thread", "shm")) {
  const std::size_t bytes = rank() == size() - 1 ? 128 : 64;
  EXPECT_THAT([&] { comm::allocate_common(world(), bytes); },
              ThrowsMessage<Mismatch>(AllOf(HasSubstr("rank 0 asks for 64 bytes"), HasSubstr("for 128"))));
}

RANKS_TEST(CommonMemory, IsNoneWithoutMemoryInCommon, Ranks(2), Backends("tcp")) {
  EXPECT_EQ(comm::allocate_common(world(), 64), nullptr);
}

RANKS_TEST(CommonMemory, ARankSeesWhatAnotherAllocated, Ranks(1, 2, 3, 4), Backends("thread", "shm")) {
  const auto mine = world().allocate_shared(WORDS * sizeof(std::uint64_t));
  for (std::size_t i = 0; i < WORDS; ++i) words(mine)[i] = value(i, static_cast<std::uint64_t>(rank()));
  const std::uint64_t place = world().backend().place_of(mine.get()).value();
  std::vector<std::uint64_t> places(static_cast<std::size_t>(size()));
  comm::all_gather(world(), std::span(&place, 1), std::span(places));
  for (int r = 0; r < size(); ++r) {
    const auto theirs =
        world().backend().memory_of(r, places[static_cast<std::size_t>(r)], WORDS * sizeof(std::uint64_t));
    EXPECT_EQ(different_words(theirs, static_cast<std::uint64_t>(r)), 0U);
  }
  comm::barrier(world());
}

}  // namespace
}  // namespace lockstep

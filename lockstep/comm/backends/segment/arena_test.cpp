#include "lockstep/comm/backends/segment/arena.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <random>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr std::size_t SEGMENT = std::size_t{64} << 20U;

TEST(Arena, RefusesMoreThanThereIsAndStaysUsable) {
  Arena arena(SharedMemory::create(SEGMENT));
  EXPECT_THROW(arena.allocate(SEGMENT + 1), SystemError);
  const std::size_t all = arena.allocate(SEGMENT);
  EXPECT_THROW(arena.allocate(1), SystemError);
  arena.free(all);
  EXPECT_EQ(arena.allocate(SEGMENT), all);
}

TEST(Arena, RefusesToFreeWhatIsNotAllocated) {
  Arena arena(SharedMemory::create(SEGMENT));
  const std::size_t block = arena.allocate(100);
  EXPECT_THROW(arena.free(block + 128), InternalError);
  arena.free(block);
  EXPECT_THROW(arena.free(block), InternalError);
}

TEST(Arena, ACondemnedBlockIsNeverHandedOutAgain) {
  Arena arena(SharedMemory::create(SEGMENT));
  const std::size_t block = arena.allocate(1000);
  const std::size_t other = arena.allocate(1000);
  arena.condemn(block + 999);
  arena.condemn(SEGMENT - 1);  // in no block
  arena.free(block);
  arena.free(other);
  EXPECT_EQ(arena.allocate(1000), other);
  EXPECT_THROW(arena.free(block), InternalError);
}

// A loop that allocates and frees the same sizes needs no more memory than its first round.
TEST(Arena, ReusesBlocks) {
  Arena arena(SharedMemory::create(SEGMENT));
  std::size_t reserved = 0;
  for (int round = 0; round < 100; ++round) {
    const std::size_t a = arena.allocate(3'000'000);
    const std::size_t b = arena.allocate(5'000'000);
    arena.free(a);
    arena.free(b);
    if (round == 0) reserved = arena.reserved_bytes();
    ASSERT_EQ(arena.reserved_bytes(), reserved);
  }
}

RC_GTEST_PROP(Arena, BlocksNeverOverlapAndAllMemoryComesBack, (std::uint32_t seed)) {
  Arena arena(SharedMemory::create(SEGMENT));
  std::mt19937 random(seed);
  std::map<std::size_t, std::size_t> blocks;
  for (int step = 0; step < 200; ++step) {
    if (blocks.empty() || random() % 3 != 0) {
      const std::size_t bytes = random() % 100'000;
      const std::size_t offset = arena.allocate(bytes);
      RC_ASSERT(offset % 128 == 0);
      const auto next = blocks.lower_bound(offset);
      // The parentheses matter: RC_ASSERT's own || would evaluate both sides.
      RC_ASSERT((next == blocks.end() || offset + bytes <= next->first));
      RC_ASSERT((next == blocks.begin() || std::prev(next)->first + std::prev(next)->second <= offset));
      blocks[offset] = bytes;
    } else {
      const auto victim = std::next(blocks.begin(), static_cast<long>(random() % blocks.size()));
      arena.free(victim->first);
      blocks.erase(victim);
    }
  }
  for (const auto& [offset, bytes] : blocks) arena.free(offset);
  RC_ASSERT(arena.allocate(SEGMENT) == 0U);
}

}  // namespace
}  // namespace lockstep

#include "lockstep/os/block_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <thread>

#include "lockstep/os/child_process.h"

namespace lockstep {
namespace {

constexpr std::size_t KIB = 1024;
constexpr std::size_t MEBIBYTE = 1024 * KIB;
constexpr std::size_t NO_CAP = std::size_t{1} << 40U;

struct Memory {
  std::size_t mapped = 0;
  std::size_t resident = 0;
};

Memory memory_of_this_process() {
  Memory pages;
  std::ifstream("/proc/self/statm") >> pages.mapped >> pages.resident;
  return {.mapped = pages.mapped * 4096, .resident = pages.resident * 4096};
}

std::size_t resident_bytes() { return memory_of_this_process().resident; }

// The kernel's flags of the mapping that contains `block`: " rd wr mr mw me ac hg ".
std::string flags_of_mapping(const void* block) {
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  bool is_found = false;
  std::ifstream maps("/proc/self/smaps");
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t from = 0;
    std::uintptr_t to = 0;
    char dash = 0;
    if (std::istringstream(line) >> std::hex >> from >> dash >> to && dash == '-') {
      is_found = from <= address && address < to;
    }
    if (is_found && line.starts_with("VmFlags:")) return line.substr(8) + " ";
  }
  return "";
}

TEST(BlockCache, WastesLessThanAPage) {
  BlockCache cache(NO_CAP);
  std::mt19937_64 random(1);
  for (int i = 0; i < 300; ++i) {
    const std::size_t bytes = BlockCache::SMALLEST + random() % (4 * MEBIBYTE);
    void* block = cache.allocate(bytes);
    ASSERT_GE(cache.stats().in_use_bytes, bytes);
    ASSERT_LT(cache.stats().in_use_bytes, bytes + 4 * KIB);
    cache.free(block);
    ASSERT_EQ(cache.stats().in_use_bytes, 0U);
  }
  void* small = cache.allocate(BlockCache::SMALLEST - 1);
  EXPECT_EQ(cache.stats().in_use_bytes, 0U) << "malloc's";
  cache.free(small);
  EXPECT_THROW(cache.allocate(~std::size_t{0} - 5), std::bad_alloc);
}

TEST(BlockCache, AlignsAndDoesNotOverlap) {
  BlockCache cache(NO_CAP);
  std::mt19937 random(2);
  std::vector<std::pair<unsigned char*, std::size_t>> blocks;
  for (int i = 0; i < 300; ++i) {
    const std::size_t bytes = random() % (i % 2 == 0 ? 1000 : 300 * KIB);
    auto* block = static_cast<unsigned char*>(cache.allocate(bytes));
    ASSERT_EQ(reinterpret_cast<std::uintptr_t>(block) % 64, 0U);
    std::memset(block, i % 251, bytes);
    blocks.emplace_back(block, bytes);
    if (i % 3 == 2) {
      cache.free(blocks.front().first);
      blocks.erase(blocks.begin());
    }
  }
  int i = 300 - static_cast<int>(blocks.size());
  for (const auto& [block, bytes] : blocks) {
    for (std::size_t at = 0; at < bytes; ++at) ASSERT_EQ(block[at], i % 251);
    cache.free(block);
    ++i;
  }
  cache.free(nullptr);
}

// Each block begins at the end of the previous block's last page. A later block that fits takes the lowest
// freed address.
TEST(BlockCache, PutsBlocksSideBySideAtTheLowestFreeAddress) {
  BlockCache cache(NO_CAP);
  std::array<std::byte*, 4> blocks = {};
  for (auto& block : blocks) block = static_cast<std::byte*>(cache.allocate(100 * KIB - 1));
  for (std::size_t i = 1; i < 4; ++i) EXPECT_EQ(blocks[i] - blocks[i - 1], 100 * KIB);
  cache.free(blocks[2]);
  cache.free(blocks[1]);
  EXPECT_EQ(cache.allocate(150 * KIB), blocks[1]);              // spans two freed blocks
  EXPECT_EQ(cache.allocate(300 * KIB), blocks[3] + 100 * KIB);  // the rest of that gap is too short
  EXPECT_EQ(cache.stats().reused, 1U);
  EXPECT_EQ(cache.stats().mapped, 5U);
}

// The kept range at the end of the used memory becomes the beginning of a block that is too long for it.
TEST(BlockCache, ContinuesKeptMemoryWithFresh) {
  BlockCache cache(NO_CAP);
  void* first = cache.allocate(MEBIBYTE);
  cache.free(first);
  EXPECT_EQ(cache.allocate(5 * MEBIBYTE), first);
  EXPECT_EQ(cache.stats().mapped, 2U);
  EXPECT_EQ(cache.stats().cached_bytes, 0U);
}

TEST(BlockCache, AsksForHugePages) {
  const bool has_any = std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled").good();
  BlockCache cache(NO_CAP);
  for (const std::size_t bytes :
       {BlockCache::SMALLEST, 3 * MEBIBYTE, 70 * MEBIBYTE, BlockCache::REGION + MEBIBYTE}) {
    void* block = cache.allocate(bytes);
    EXPECT_EQ(flags_of_mapping(block).find(" hg ") != std::string::npos, has_any) << bytes;
    cache.free(block);
  }
  void* first = cache.allocate(MEBIBYTE);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % (2 * MEBIBYTE), 0U) << "of the region";
}

TEST(BlockCache, FreesSmallBlocksThatBeginAPage) {
  BlockCache cache(NO_CAP);
  std::vector<void*> blocks;
  for (int i = 0; i < 1000; ++i)
    blocks.push_back(cache.allocate(1024 + 64 * (static_cast<std::size_t>(i) % 7)));
  for (void* block : blocks) cache.free(block);
  EXPECT_EQ(cache.stats().cached_bytes, 0U);
  EXPECT_EQ(cache.stats().mapped, 0U);
}

TEST(BlockCache, HandsOutTheSameBlocksAgain) {
  BlockCache cache(NO_CAP);
  void* a = cache.allocate(MEBIBYTE);
  void* b = cache.allocate(MEBIBYTE);
  cache.free(a);
  cache.free(b);
  EXPECT_EQ(cache.allocate(MEBIBYTE - 1000), a);
  EXPECT_EQ(cache.allocate(MEBIBYTE), b);
  EXPECT_EQ(cache.stats().mapped, 2U);
  EXPECT_EQ(cache.stats().reused, 2U);
  EXPECT_EQ(cache.stats().in_use_bytes, 2 * MEBIBYTE);
  cache.free(a);
  cache.free(b);
}

TEST(BlockCache, KeepsNoMoreThanItsCap) {
  BlockCache cache(3 * MEBIBYTE);
  std::vector<void*> blocks;
  for (int i = 0; i < 5; ++i) blocks.push_back(cache.allocate(MEBIBYTE));
  void* larger_than_the_cap = cache.allocate(4 * MEBIBYTE);
  for (void* block : blocks) cache.free(block);
  EXPECT_EQ(cache.stats().cached_bytes, 3 * MEBIBYTE);
  cache.free(larger_than_the_cap);
  EXPECT_EQ(cache.stats().cached_bytes, 3 * MEBIBYTE);
  cache.set_cap(MEBIBYTE);
  EXPECT_EQ(cache.stats().cached_bytes, MEBIBYTE);
  EXPECT_EQ(cache.stats().returned, 4U);
  EXPECT_EQ(cache.stats().in_use_bytes, 0U);
}

TEST(BlockCache, EmptyReturnsMemoryAndAddressesToTheKernel) {
  BlockCache cache(NO_CAP);
  for (const std::size_t size : {8 * MEBIBYTE, 64 * MEBIBYTE, BlockCache::REGION}) {
    std::vector<void*> blocks;
    for (std::size_t bytes = 0; bytes < 64 * MEBIBYTE; bytes += size) {
      blocks.push_back(cache.allocate(size));
      std::memset(blocks.back(), 1, std::min(size, 64 * MEBIBYTE));
    }
    for (void* block : blocks) cache.free(block);
    const Memory full = memory_of_this_process();
    cache.empty();
    EXPECT_LT(resident_bytes() + 60 * MEBIBYTE, full.resident) << size;
    EXPECT_LT(memory_of_this_process().mapped + BlockCache::REGION - 4 * MEBIBYTE, full.mapped) << size;
    EXPECT_EQ(cache.stats().cached_bytes, 0U);
  }
}

// A block in use keeps its memory while the memory on both sides of it is given back and allocated again.
TEST(BlockCache, GivesBackOnlyWhatIsFree) {
  BlockCache cache(0);  // keeps no memory
  std::array<unsigned char*, 3> blocks = {};
  for (auto& block : blocks) {
    block = static_cast<unsigned char*>(cache.allocate(BlockCache::SMALLEST));
    std::memset(block, 9, BlockCache::SMALLEST);
  }
  cache.free(blocks[0]);
  cache.free(blocks[2]);
  EXPECT_EQ(cache.stats().returned, 2U);
  for (std::size_t i = 0; i < BlockCache::SMALLEST; ++i) ASSERT_EQ(blocks[1][i], 9) << i;
  EXPECT_EQ(cache.allocate(BlockCache::SMALLEST), blocks[0]);
  EXPECT_EQ(blocks[0][BlockCache::SMALLEST / 2], 0);  // fresh pages of the kernel
  cache.free(blocks[0]);
  cache.free(blocks[1]);
}

// The cache keeps 3 MiB, and every second needs only 2. The third goes back after IDLE_TIME.
TEST(BlockCache, GivesBackWhatNobodyNeededInAWhile) {
  BlockCache cache(NO_CAP);
  const auto start = BlockCache::Clock::now();
  void* idle = cache.allocate(MEBIBYTE);
  void* busy = cache.allocate(2 * MEBIBYTE);
  cache.free(idle, start);
  cache.free(busy, start);
  for (int second = 1; second <= 25; ++second) {
    busy = cache.allocate(2 * MEBIBYTE);
    cache.free(busy, start + std::chrono::seconds(second));
    if (second == 9) EXPECT_EQ(cache.stats().cached_bytes, 3 * MEBIBYTE);
  }
  EXPECT_EQ(cache.stats().cached_bytes, 2 * MEBIBYTE);
  EXPECT_EQ(cache.stats().returned, 1U);
  EXPECT_EQ(cache.stats().mapped, 2U);
}

TEST(BlockCache, GivesEverythingBackWhenMemoryIsScarce) {
  static bool is_scarce;
  is_scarce = false;
  BlockCache cache(NO_CAP, [] { return is_scarce; });
  const auto start = BlockCache::Clock::now();
  cache.free(cache.allocate(MEBIBYTE), start);
  cache.free(cache.allocate(32 * MEBIBYTE), start + BlockCache::IDLE_TIME / 2);
  EXPECT_EQ(cache.stats().cached_bytes, 32 * MEBIBYTE);
  is_scarce = true;
  cache.free(cache.allocate(MEBIBYTE), start + BlockCache::IDLE_TIME / 2);  // too early for another check
  EXPECT_EQ(cache.stats().cached_bytes, 32 * MEBIBYTE);
  cache.free(cache.allocate(MEBIBYTE), start + BlockCache::IDLE_TIME);
  EXPECT_EQ(cache.stats().cached_bytes, 0U);
}

// This process may not map another 80 MiB, much less a region, unless the cache gives back the 64 MiB that it
// keeps.
TEST(BlockCache, TriesAgainWithoutWhatItKept) {
  const pid_t child = fork_child([] {
    BlockCache cache(NO_CAP);
    const rlim_t limit = memory_of_this_process().mapped + 100 * MEBIBYTE;
    const rlimit limits{.rlim_cur = limit, .rlim_max = limit};
    if (setrlimit(RLIMIT_AS, &limits) != 0) return 2;
    cache.free(cache.allocate(64 * MEBIBYTE));
    if (cache.stats().cached_bytes != 64 * MEBIBYTE) return 3;
    std::memset(cache.allocate(80 * MEBIBYTE), 1, 80 * MEBIBYTE);
    if (cache.stats().cached_bytes != 0) return 4;
    try {
      (void)cache.allocate(80 * MEBIBYTE);
    } catch (const std::bad_alloc&) {
      return 7;
    }
    return 5;
  });
  EXPECT_EQ(wait_exit(child).code, 7);
}

TEST(BlockCache, RefusesWhatThereIsNoMemoryFor) {
  BlockCache cache(NO_CAP);
  cache.free(cache.allocate(MEBIBYTE));
  EXPECT_THROW(cache.allocate(std::size_t{1} << 60U), std::bad_alloc);
  EXPECT_EQ(cache.stats().cached_bytes, 0U);  // given back before the allocation fails
  EXPECT_EQ(cache.stats().in_use_bytes, 0U);
}

TEST(BlockCache, ServesSeveralThreads) {
  BlockCache cache(NO_CAP);
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&cache, t] {
      for (int i = 0; i < 2000; ++i) {
        auto* block =
            static_cast<int*>(cache.allocate(BlockCache::SMALLEST * (1 + static_cast<std::size_t>(i) % 5)));
        *block = t;
        if (*block != t) ADD_FAILURE() << "two threads have one block";
        cache.free(block);
      }
    });
  }
  threads.clear();
  EXPECT_EQ(cache.stats().in_use_bytes, 0U);
  EXPECT_EQ(cache.stats().mapped + cache.stats().reused, 8000U);
}

TEST(BlockCache, AForkedChildGoesOnUsingIt) {
  BlockCache cache(NO_CAP);
  void* block = cache.allocate(MEBIBYTE);
  cache.before_fork();
  const pid_t child = fork_child([&] {
    cache.after_fork();
    cache.free(block);
    return cache.allocate(MEBIBYTE) == block ? 7 : 1;
  });
  cache.after_fork();
  EXPECT_EQ(wait_exit(child).code, 7);
  cache.free(block);
}

}  // namespace
}  // namespace lockstep

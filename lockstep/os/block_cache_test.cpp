#include "lockstep/os/block_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstring>
#include <fstream>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <thread>

#include "lockstep/os/child_process.h"

namespace lockstep {
namespace {

constexpr std::size_t KIB = 1024;
constexpr std::size_t MIB = 1024 * KIB;
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

// The kernel's flags of the mapping that `block` lies in: " rd wr mr mw me ac hg ".
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

TEST(BlockSizeClass, WastesAtMostAnEighthAndHasEightSizesPerDoubling) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 100000; ++i) {
    const std::size_t bytes = BlockCache::SMALLEST + random() % (std::size_t{1} << (17U + i % 20U));
    const std::size_t size = block_size_class(bytes);
    ASSERT_GE(size, bytes);
    ASSERT_LE(static_cast<double>(size - bytes), 0.125 * static_cast<double>(bytes));
    ASSERT_EQ(block_size_class(size), size);
  }
  std::set<std::size_t> sizes;
  for (std::size_t bytes = MIB + 1; bytes <= 2 * MIB; bytes += 4 * KIB) sizes.insert(block_size_class(bytes));
  EXPECT_EQ(sizes.size(), 8U);
  EXPECT_EQ(block_size_class(BlockCache::SMALLEST - 1), BlockCache::SMALLEST - 1);
  EXPECT_THROW(block_size_class(~std::size_t{0} - 5), std::bad_alloc);
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

// Of two blocks the second begins where the first one's size class ends: nothing is wasted but the rounding.
TEST(BlockCache, StoresNothingBesideItsBlocks) {
  BlockCache cache(NO_CAP);
  for (const std::size_t bytes : {BlockCache::SMALLEST, 100 * KIB, MIB, 6400 * KIB}) {
    auto* a = static_cast<std::byte*>(cache.allocate(bytes));
    auto* b = static_cast<std::byte*>(cache.allocate(bytes));
    EXPECT_EQ(b - a, static_cast<std::ptrdiff_t>(block_size_class(bytes))) << bytes;
  }
  const std::size_t before = memory_of_this_process().mapped;
  void* own = cache.allocate(64 * MIB);
  EXPECT_EQ(memory_of_this_process().mapped, before + 64 * MIB);
  cache.free(own);
}

TEST(BlockCache, AsksForHugePages) {
  const bool has_any = std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled").good();
  BlockCache cache(NO_CAP);
  for (const std::size_t bytes : {BlockCache::SMALLEST, 3 * MIB, BlockCache::OWN_MAPPING, 70 * MIB}) {
    void* block = cache.allocate(bytes);
    EXPECT_EQ(flags_of_mapping(block).find(" hg ") != std::string::npos, has_any) << bytes;
    if (bytes >= BlockCache::OWN_MAPPING) {
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % (2 * MIB), 0U);
      EXPECT_EQ(block_size_class(bytes) % (2 * MIB), 0U);
    }
    cache.free(block);
  }
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

TEST(BlockCache, HandsOutTheBlockFreedLast) {
  BlockCache cache(NO_CAP);
  void* a = cache.allocate(MIB);
  void* b = cache.allocate(MIB);
  cache.free(a);
  cache.free(b);
  EXPECT_EQ(cache.allocate(MIB - 1000), b);  // the same size class
  EXPECT_EQ(cache.allocate(MIB), a);
  EXPECT_EQ(cache.stats().mapped, 2U);
  EXPECT_EQ(cache.stats().reused, 2U);
  EXPECT_EQ(cache.stats().in_use_bytes, 2 * MIB);
  cache.free(a);
  cache.free(b);
}

TEST(BlockCache, KeepsNoMoreThanItsCap) {
  BlockCache cache(3 * MIB);
  std::vector<void*> blocks;
  for (int i = 0; i < 5; ++i) blocks.push_back(cache.allocate(MIB));
  void* larger_than_the_cap = cache.allocate(4 * MIB);
  for (void* block : blocks) cache.free(block);
  EXPECT_EQ(cache.stats().cached_bytes, 3 * MIB);
  cache.free(larger_than_the_cap);
  EXPECT_EQ(cache.stats().cached_bytes, 3 * MIB);
  cache.set_cap(MIB);
  EXPECT_EQ(cache.stats().cached_bytes, MIB);
  EXPECT_EQ(cache.stats().returned, 5U);
  EXPECT_EQ(cache.stats().in_use_bytes, 0U);
}

TEST(BlockCache, EmptyReturnsTheMemoryToTheKernel) {
  BlockCache cache(NO_CAP);
  for (const std::size_t size : {8 * MIB, 64 * MIB}) {  // carved from regions, mapped on its own
    std::vector<void*> blocks;
    for (std::size_t bytes = 0; bytes < 64 * MIB; bytes += size) {
      blocks.push_back(cache.allocate(size));
      std::memset(blocks.back(), 1, size);
    }
    for (void* block : blocks) cache.free(block);
    const std::size_t before = resident_bytes();
    cache.empty();
    EXPECT_LT(resident_bytes() + 60 * MIB, before) << size;
    EXPECT_EQ(cache.stats().cached_bytes, 0U);
  }
}

TEST(BlockCache, CarvesAPlaceOnlyOnce) {
  BlockCache cache(NO_CAP);
  auto* block = static_cast<unsigned char*>(cache.allocate(MIB));
  std::memset(block, 7, MIB);
  cache.free(block);
  cache.empty();
  EXPECT_EQ(cache.allocate(MIB), block);
  EXPECT_EQ(block[MIB / 2], 0);  // fresh pages of the kernel
  EXPECT_EQ(cache.stats().mapped, 2U);
}

TEST(BlockCache, GivesBackWhatNobodyAskedForInAWhile) {
  BlockCache cache(NO_CAP);
  const auto start = BlockCache::Clock::now();
  void* idle = cache.allocate(MIB);
  void* busy = cache.allocate(2 * MIB);
  cache.free(idle, start);
  cache.free(busy, start);
  for (int second = 1; second <= 12; ++second) {
    busy = cache.allocate(2 * MIB);
    cache.free(busy, start + std::chrono::seconds(second));
  }
  EXPECT_EQ(cache.stats().cached_bytes, 2 * MIB);
  EXPECT_EQ(cache.stats().mapped, 2U);
}

TEST(BlockCache, GivesEverythingBackWhenMemoryIsScarce) {
  static bool is_scarce;
  is_scarce = false;
  BlockCache cache(NO_CAP, [] { return is_scarce; });
  const auto start = BlockCache::Clock::now();
  cache.free(cache.allocate(MIB), start);
  cache.free(cache.allocate(32 * MIB), start + BlockCache::IDLE_TIME / 2);
  EXPECT_EQ(cache.stats().cached_bytes, 33 * MIB);
  is_scarce = true;
  cache.free(cache.allocate(MIB), start + BlockCache::IDLE_TIME / 2);  // too early for another look
  EXPECT_EQ(cache.stats().cached_bytes, 33 * MIB);
  cache.free(cache.allocate(MIB), start + BlockCache::IDLE_TIME);
  EXPECT_EQ(cache.stats().cached_bytes, 0U);
}

// In a process that may not map another 64 MiB, unless it gives back the 64 MiB it keeps.
TEST(BlockCache, TriesAgainWithoutWhatItKept) {
  const pid_t child = fork_child([] {
    BlockCache cache(NO_CAP);
    cache.free(cache.allocate(64 * MIB));
    const rlim_t limit = memory_of_this_process().mapped + 20 * MIB;
    const rlimit limits{.rlim_cur = limit, .rlim_max = limit};
    if (setrlimit(RLIMIT_AS, &limits) != 0) return 2;
    std::memset(cache.allocate(56 * MIB), 1, 56 * MIB);
    if (cache.stats().cached_bytes != 0) return 3;
    try {
      (void)cache.allocate(56 * MIB);
    } catch (const std::bad_alloc&) {
      return 7;
    }
    return 4;
  });
  EXPECT_EQ(wait_exit(child).code, 7);
}

TEST(BlockCache, RefusesWhatThereIsNoMemoryFor) {
  BlockCache cache(NO_CAP);
  cache.free(cache.allocate(MIB));
  EXPECT_THROW(cache.allocate(std::size_t{1} << 60U), std::bad_alloc);
  EXPECT_EQ(cache.stats().cached_bytes, 0U);  // given back before giving up
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
  void* block = cache.allocate(MIB);
  cache.before_fork();
  const pid_t child = fork_child([&] {
    cache.after_fork();
    cache.free(block);
    return cache.allocate(MIB) == block ? 7 : 1;
  });
  cache.after_fork();
  EXPECT_EQ(wait_exit(child).code, 7);
  cache.free(block);
}

}  // namespace
}  // namespace lockstep

#include "lockstep/os/file_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "testing/in_memory.h"
#include "testing/temp_folder.h"

namespace lockstep {
namespace file_memory_test {
namespace {

constexpr std::size_t MIB = std::size_t{1} << 20U;

std::size_t resident_bytes(const void* data, std::size_t bytes) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> in(bytes / page);
  EXPECT_EQ(::mincore(const_cast<void*>(data), bytes, in.data()), 0);
  std::size_t pages = 0;
  for (const unsigned char flag : in) pages += flag & 1U;
  return pages * page;
}

// Number i becomes i, then 2 i. So every dropped page has been read back.
TEST(FileMemory, HoldsAFewRangesInMemoryAndAllOnTheDisk) {
  const testing::TempFolder folder;
  FileMemory memory(folder.path());
  constexpr std::size_t RANGES = 16, NUMBERS = 8 * MIB / sizeof(std::uint64_t);
  std::vector<std::span<std::uint64_t>> ranges;
  auto* const data = static_cast<std::uint64_t*>(memory.allocate(RANGES * 8 * MIB));
  for (std::size_t r = 0; r < RANGES; ++r) ranges.emplace_back(data + r * NUMBERS, NUMBERS);
  for (int sweep = 0; sweep < 2; ++sweep) {
    for (std::size_t r = 0; r < RANGES; ++r) {
      for (std::size_t i = 0; i < NUMBERS; ++i) ranges[r][i] += r * NUMBERS + i;
      memory.is_done({{ranges[r].data(), ranges[r].size_bytes()}});
    }
    if (!testing::is_in_memory(folder.path())) EXPECT_LE(resident_bytes(data, RANGES * 8 * MIB), 2 * 8 * MIB);
  }
  memory.will_need({{data, RANGES * 8 * MIB}});
  for (std::size_t i = 0; i < RANGES * NUMBERS; ++i) ASSERT_EQ(data[i], 2 * i);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << "the file has no name";
}

TEST(FileMemory, ManySmallOnesShareAFile) {
  const testing::TempFolder folder;
  FileMemory memory(folder.path());
  auto* const first = static_cast<std::byte*>(memory.allocate(1));
  auto* const second = static_cast<std::byte*>(memory.allocate(100));
  EXPECT_EQ(second - first, 64);
  EXPECT_EQ(memory.bytes(), 64 * MIB);
  memory.allocate(64 * MIB);
  EXPECT_EQ(memory.bytes(), 128 * MIB);
  const std::vector<std::byte> elsewhere(MIB);
  memory.will_need({{elsewhere.data(), MIB}});  // ignored: not of this memory
  memory.is_done({{elsewhere.data(), MIB}, {first, 164}});
}

TEST(FileMemory, NamesTheFolderThatIsMissingOrHasNoRoom) {
  const testing::TempFolder folder;
  FileMemory nowhere(folder / "none");
  try {
    nowhere.allocate(1);
    FAIL();
  } catch (const SystemError& error) {
    EXPECT_EQ(error.error_number(), ENOENT);
    EXPECT_NE(std::string(error.what()).find("none"), std::string::npos);
  }
  const rlimit small = {32 * MIB, RLIM_INFINITY};
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  FileMemory limited(folder.path());
  try {
    limited.allocate(1);
    ADD_FAILURE();
  } catch (const SystemError& error) {
    EXPECT_EQ(error.error_number(), EFBIG);
  }
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
}

}  // namespace
}  // namespace file_memory_test
}  // namespace lockstep

#include "lockstep/os/locked_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/os/child_process.h"
#include "testing/temp_folder.h"

namespace lockstep {
namespace {

using testing::TempFolder;

constexpr std::size_t READ_LIMIT = 1000;

// Reads the number in the file and writes the next one. If two did this at once, a count would be lost.
void count_to(const LockedFile& file, int times) {
  for (int i = 0; i < times; ++i) {
    const auto guard = file.lock();
    const std::string text = file.read(READ_LIMIT);
    file.write_at(0, std::to_string(text.empty() ? 1 : std::stoi(text) + 1));
  }
}

TEST(LockedFile, IsMadeForThisUserAlone) {
  const TempFolder folder;
  const LockedFile file(folder / "file");
  struct stat status = {};
  ASSERT_EQ(stat(file.path().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777U, 0600U);
}

TEST(LockedFile, WritingCutsOffWhatFollows) {
  const TempFolder folder;
  const LockedFile file(folder.write("file", "0123456789"));
  file.write_at(4, "ab");
  EXPECT_EQ(file.read(READ_LIMIT), "0123ab");
}

TEST(LockedFile, TooLargeAFileIsRefused) {
  const TempFolder folder;
  const LockedFile file(folder.write("file", "0123456789"));
  EXPECT_EQ(file.read(10).size(), 10U);
  try {
    file.read(9);
    FAIL();
  } catch (const SystemError& error) {
    EXPECT_EQ(error.error_number(), EFBIG);
  }
}

TEST(LockedFile, LinksAndFoldersAreRefused) {
  const TempFolder folder;
  folder.write("file", "");
  std::filesystem::create_symlink(folder / "file", folder / "link");
  EXPECT_THROW(LockedFile(folder / "link"), SystemError);
  EXPECT_THROW(LockedFile(folder.path()), SystemError);
}

TEST(LockedFile, ThreadsWithOneObjectExcludeEachOther) {
  const TempFolder folder;
  const LockedFile file(folder / "file");
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) threads.emplace_back([&] { count_to(file, 200); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(file.read(READ_LIMIT), "800");
}

TEST(LockedFile, ThreadsWithTheirOwnObjectsExcludeEachOther) {
  const TempFolder folder;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) threads.emplace_back([&] { count_to(LockedFile(folder / "file"), 200); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(LockedFile(folder / "file").read(READ_LIMIT), "800");
}

TEST(LockedFile, ProcessesExcludeEachOther) {
  const TempFolder folder;
  std::vector<pid_t> children;
  for (int p = 0; p < 4; ++p) {
    children.push_back(fork_child([&] {
      count_to(LockedFile(folder / "file"), 200);
      return 0;
    }));
  }
  for (const pid_t child : children) EXPECT_TRUE(wait_exit(child).success());
  EXPECT_EQ(LockedFile(folder / "file").read(READ_LIMIT), "800");
}

}  // namespace
}  // namespace lockstep

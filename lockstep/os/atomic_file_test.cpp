#include "lockstep/os/atomic_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"
#include "testing/temp_folder.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TempFolder;

std::span<const std::byte> as_bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

std::vector<std::string> names_in(const TempFolder& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    names.push_back(entry.path().filename());
  return names;
}

TEST(AtomicFile, ReplacesTheOldFileOnCommitOnly) {
  const TempFolder folder;
  AtomicFile file(folder.write("model", "old"));
  file.write(as_bytes_of("new "));
  file.write(as_bytes_of("content"));
  EXPECT_EQ(folder.read("model"), "old");
  file.commit();
  EXPECT_EQ(folder.read("model"), "new content");
  EXPECT_THAT(names_in(folder), ElementsAre("model"));
}

TEST(AtomicFile, IsReadByWhomTheUmaskLetsOrByItsUserAlone) {
  const TempFolder folder;
  for (const mode_t mask : {0000U, 0027U, 0077U}) {
    for (const auto access : {AtomicFile::Access::AS_UMASK, AtomicFile::Access::PRIVATE}) {
      const mode_t before = umask(mask);
      AtomicFile file(folder / "file", access);
      file.commit();
      umask(before);
      struct stat status = {};
      ASSERT_EQ(stat((folder / "file").c_str(), &status), 0);
      EXPECT_EQ(status.st_mode & 07777U, access == AtomicFile::Access::PRIVATE ? 0600U : 0666U & ~mask);
    }
  }
}

TEST(AtomicFile, LeavesTheOldFileWhenNotCommitted) {
  const TempFolder folder;
  { AtomicFile(folder.write("model", "old")).write(as_bytes_of("new")); }
  EXPECT_EQ(folder.read("model"), "old");
  EXPECT_THAT(names_in(folder), ElementsAre("model"));
}

TEST(AtomicFile, LeavesTheOldFileWhenTheDiskIsFull) {
  const TempFolder folder;
  const std::string path = folder.write("model", "old");
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{.rlim_cur = 1000, .rlim_max = before.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_THROW(AtomicFile(path).write(as_bytes_of(std::string(2000, 'x'))), SystemError);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  (void)std::signal(SIGXFSZ, handler);
  EXPECT_EQ(folder.read("model"), "old");
  EXPECT_THAT(names_in(folder), ElementsAre("model"));
}

TEST(AtomicFile, NamesThePathThatCannotBeWritten) {
  const TempFolder folder;
  try {
    AtomicFile file(folder / "missing/model");
    ADD_FAILURE() << "accepted";
  } catch (const SystemError& error) {
    EXPECT_THAT(error.what(), HasSubstr(folder / "missing/model"));
    EXPECT_EQ(error.error_number(), ENOENT);
  }
  std::filesystem::create_directory(folder / "folder");
  AtomicFile over_a_folder(folder / "folder");
  EXPECT_THROW(over_a_folder.commit(), SystemError);
}

TEST(AtomicFile, HonoursTheUmask) {
  const TempFolder folder;
  const mode_t before = ::umask(027);
  AtomicFile file(folder / "model");
  file.commit();
  ::umask(before);
  struct stat status {};
  ASSERT_EQ(::stat((folder / "model").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0640U);
}

}  // namespace
}  // namespace lockstep

#include "lockstep/os/private_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "testing/temp_folder.h"

namespace lockstep {
namespace {

using testing::TempFolder;

unsigned mode_of(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 ? info.st_mode & 07777U : 0;
}

TEST(PrivateFolder, IsTheUsersAlone) {
  const TempFolder base;
  const mode_t before = umask(0);
  const PrivateFolder folder = PrivateFolder::create(base / "a/b", "run");
  const Fd file = folder.create_file("log");
  umask(before);
  EXPECT_EQ(folder.path(), base / "a/b/run");
  EXPECT_EQ(mode_of(base / "a"), 0700U);
  EXPECT_EQ(mode_of(base / "a/b"), 0700U);
  EXPECT_EQ(mode_of(folder.path()), 0700U);
  EXPECT_EQ(mode_of(folder.path() + "/log"), 0600U);
}

TEST(PrivateFolder, IsAlwaysNew) {
  const TempFolder base;
  const PrivateFolder folder = PrivateFolder::create(base.path(), "run");
  EXPECT_THROW(PrivateFolder::create(base.path(), "run"), SystemError);
}

TEST(PrivateFolder, FollowsNoLinkThatSomebodyPlaced) {
  const TempFolder base;
  base.write("victim", "precious");
  const PrivateFolder folder = PrivateFolder::create(base.path(), "run");
  ASSERT_EQ(symlink((base / "victim").c_str(), (folder.path() + "/log").c_str()), 0);
  EXPECT_THROW(folder.create_file("log"), SystemError);
  EXPECT_EQ(base.read("victim"), "precious");
  ASSERT_EQ(symlink(folder.path().c_str(), (base / "link").c_str()), 0);
  EXPECT_THROW(PrivateFolder::create(base.path(), "link"), SystemError);
}

TEST(PrivateFolder, SaysWhatIsInTheWay) {
  const TempFolder base;
  base.write("file", "x");
  try {
    PrivateFolder::create(base / "file", "run");
    FAIL();
  } catch (const SystemError& error) {
    EXPECT_NE(std::string(error.what()).find("file/run"), std::string::npos) << error.what();
  }
}

// Sets XDG_RUNTIME_DIR for one test.
class RuntimeFolder {
 public:
  explicit RuntimeFolder(const std::string& value) {
    if (const auto before = env("XDG_RUNTIME_DIR")) before_ = *before;
    setenv("XDG_RUNTIME_DIR", value.c_str(), 1);
  }
  ~RuntimeFolder() {
    if (before_.empty()) unsetenv("XDG_RUNTIME_DIR");
    if (!before_.empty()) setenv("XDG_RUNTIME_DIR", before_.c_str(), 1);
  }
  RuntimeFolder(const RuntimeFolder&) = delete;
  RuntimeFolder& operator=(const RuntimeFolder&) = delete;

 private:
  std::string before_;
};

std::string meeting_folder(const std::string& runtime) {
  const RuntimeFolder set(runtime);
  return user_private_folder();
}

TEST(UserPrivateFolder, IsInTheRuntimeFolder) {
  const TempFolder runtime;
  EXPECT_EQ(meeting_folder(runtime.path()), runtime / "lockstep");
  EXPECT_EQ(mode_of(runtime / "lockstep"), 0700U);
}

// This happens after su and sudo, under Slurm and in containers.
TEST(UserPrivateFolder, IsInTmpWhereTheRuntimeFolderCannotBeUsed) {
  const std::string in_tmp = "/tmp/lockstep-" + std::to_string(geteuid());
  const TempFolder base;
  EXPECT_EQ(meeting_folder(base / "missing"), in_tmp);
  EXPECT_EQ(meeting_folder(base.write("file", "x")), in_tmp);
  EXPECT_EQ(meeting_folder("/proc/self"), in_tmp) << "nothing can be made there, also by root";
  const std::string longest = base / std::string(50, 'x');
  std::filesystem::create_directory(longest);
  EXPECT_EQ(meeting_folder(longest), in_tmp) << "no socket would fit";
  EXPECT_FALSE(std::filesystem::exists(longest + "/lockstep"));
  std::filesystem::create_directory(base / "open");
  std::filesystem::create_directory(base / "open/lockstep");
  std::filesystem::permissions(base / "open/lockstep", std::filesystem::perms::all);
  EXPECT_EQ(meeting_folder(base / "open"), in_tmp) << "others may write there";
  if (geteuid() == 0) {
    std::filesystem::create_directory(base / "theirs");
    ASSERT_EQ(chown((base / "theirs").c_str(), 4711, 4711), 0);
    EXPECT_EQ(meeting_folder(base / "theirs"), in_tmp);
    EXPECT_FALSE(std::filesystem::exists(base / "theirs/lockstep")) << "it would be in that user's way";
  }
}

}  // namespace
}  // namespace lockstep

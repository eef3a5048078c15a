#include "lockstep/os/private_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

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

}  // namespace
}  // namespace lockstep

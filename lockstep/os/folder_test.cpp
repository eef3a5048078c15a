#include "lockstep/os/folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <optional>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/os/folder_lock.h"
#include "testing/temp_folder.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TempFolder;

template <typename Act> int error_number_of(const Act& act, const std::string& named) {
  try {
    act();
  } catch (const SystemError& error) {
    EXPECT_THAT(error.what(), HasSubstr(named));
    return error.error_number();
  }
  return 0;
}

TEST(Folder, IsMadeWithWhatIsMissingAboveIt) {
  const TempFolder folder;
  const std::string deep = folder / "a/b//c/";
  make_folders(deep);
  make_folders(deep);  // no error
  EXPECT_TRUE(is_folder(deep));
  EXPECT_FALSE(is_file(deep));
  EXPECT_EQ(error_number_of([&] { make_folder(folder / "a"); }, "/a\""), EEXIST);
  folder.write("file", "");
  EXPECT_TRUE(is_file(folder / "file"));
  EXPECT_EQ(error_number_of([&] { make_folders(folder / "file/x"); }, "file/x"), ENOTDIR);
}

TEST(Folder, ListsItsEntriesSorted) {
  const TempFolder folder;
  folder.write("b", "");
  folder.write(".a", "");
  make_folder(folder / "c");
  EXPECT_THAT(names_in(folder.path()), ElementsAre(".a", "b", "c"));
  EXPECT_EQ(error_number_of([&] { names_in(folder / "gone"); }, "gone"), ENOENT);
}

TEST(Folder, ExchangesTwoFoldersInOneStep) {
  const TempFolder folder;
  make_folder(folder / "a");
  make_folder(folder / "b");
  folder.write("a/old", "");
  if (!exchange_paths(folder / "a", folder / "b")) GTEST_SKIP() << "this file system exchanges no names";
  EXPECT_THAT(names_in(folder / "b"), ElementsAre("old"));
  sync_folder(folder / "b");
  EXPECT_EQ(error_number_of([&] { rename_path(folder / "a", folder / "b"); }, "/b\""), ENOTEMPTY);
  EXPECT_EQ(error_number_of([&] { exchange_paths(folder / "a", folder / "gone"); }, "gone"), ENOENT);
}

TEST(Folder, IsRemovedUnlessAFolderIsInIt) {
  const TempFolder folder;
  make_folders(folder / "flat");
  folder.write("flat/file", "");
  remove_flat_folder(folder / "flat");
  EXPECT_FALSE(is_folder(folder / "flat"));
  make_folders(folder / "deep/inner");
  EXPECT_NE(error_number_of([&] { remove_flat_folder(folder / "deep"); }, "inner"), 0);
  EXPECT_TRUE(is_folder(folder / "deep/inner"));
}

TEST(FolderLock, LetsOneHolderInAndNamesIt) {
  using namespace std::chrono_literals;
  const TempFolder folder;
  std::optional<FolderLock> first(std::in_place, folder / ".lock", 0ms);
  EXPECT_EQ(error_number_of([&] { FolderLock(folder / ".lock", 30ms); }, str("pid ", ::getpid(), ")")),
            EBUSY);
  std::thread release([&] { first.reset(); });
  const FolderLock second(folder / ".lock", 30s);
  release.join();
}

}  // namespace
}  // namespace lockstep

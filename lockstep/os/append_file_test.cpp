#include "lockstep/os/append_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cerrno>

#include "lockstep/base/error.h"
#include "testing/temp_folder.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing::TempFolder;

TEST(AppendFile, CutsWhatCameAfterwardsAndGoesOn) {
  const TempFolder folder;
  std::uint64_t kept = 0;
  {
    AppendFile file(folder / "file");
    file.append("first\n");
    kept = file.size();
    file.append("second\n");
    file.sync();
  }
  EXPECT_EQ(kept, 6U);
  AppendFile file(folder / "file", kept);
  EXPECT_EQ(file.size(), 6U);
  file.append("other\n");
  EXPECT_EQ(folder.read("file"), "first\nother\n");
  EXPECT_EQ(AppendFile(folder / "file", 100).size(), 12U) << "shorter than what is to be kept";
  EXPECT_EQ(AppendFile(folder / "file").size(), 0U);
  EXPECT_EQ(folder.read("file"), "");
}

TEST(AppendFile, NamesWhoCannotWriteWhere) {
  const TempFolder folder;
  EXPECT_THAT([&] { AppendFile(folder / "missing/file", 0, "metrics"); },
              ::testing::ThrowsMessage<SystemError>(HasSubstr("metrics: cannot write " + folder.path())));
  AppendFile("/dev/null").append("nothing");
}

TEST(FileSizeLimit, OfAnAppendedFileIsAnErrorAndNoSignal) {
  const TempFolder folder;
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  AppendFile file(folder / "file");
  const rlimit small = {.rlim_cur = 4, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  int error_number = 0;
  try {
    file.append("more than four bytes");
  } catch (const SystemError& error) {
    error_number = error.error_number();
  }
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(error_number, EFBIG);
}

}  // namespace
}  // namespace lockstep

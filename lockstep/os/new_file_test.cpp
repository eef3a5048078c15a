#include "lockstep/os/new_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cerrno>
#include <string>

#include "lockstep/base/error.h"
#include "testing/temp_folder.h"

namespace lockstep {
namespace new_file_test {
namespace {

using ::testing::HasSubstr;
using testing::TempFolder;

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

TEST(NewFile, HoldsWhatWasWrittenAndCountsIt) {
  const TempFolder folder;
  NewFile file(folder / "file");
  file.write(bytes_of("one "));
  file.begin_sync();
  file.write(bytes_of("two"));
  file.sync();
  EXPECT_EQ(file.size(), 7U);
  EXPECT_EQ(folder.read("file"), "one two");
}

TEST(NewFile, RefusesAFileThatIsThereAndALink) {
  const TempFolder folder;
  folder.write("file", "kept");
  for (const std::string name : {"file", "missing/file"}) {
    try {
      const NewFile file(folder / name);
      FAIL() << name;
    } catch (const SystemError& error) {
      EXPECT_THAT(error.what(), HasSubstr(name));
      EXPECT_EQ(error.error_number(), name == "file" ? EEXIST : ENOENT);
    }
  }
  EXPECT_EQ(folder.read("file"), "kept");
}

TEST(FileSizeLimit, OfANewFileIsAnErrorAndNoSignal) {
  const TempFolder folder;
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small = {.rlim_cur = 4, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  NewFile file(folder / "file");
  int error_number = 0;
  try {
    file.write(bytes_of("more than four bytes"));
  } catch (const SystemError& error) {
    error_number = error.error_number();
  }
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(error_number, EFBIG);
}

}  // namespace
}  // namespace new_file_test
}  // namespace lockstep

#include "lockstep/os/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "lockstep/base/error.h"
#include "testing/temp_folder.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TempFolder;

std::string text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

TEST(MappedFile, HoldsTheBytesOfTheFile) {
  const TempFolder folder;
  const std::string content(100'000, 'x');
  MappedFile file(folder.write("large", content + "end"));
  EXPECT_EQ(text_of(file), content + "end");
  const MappedFile moved(std::move(file));
  EXPECT_EQ(text_of(moved), content + "end");
  EXPECT_TRUE(MappedFile(folder.write("empty", "")).bytes().empty());
}

TEST(MappedFile, StaysWholeWhenTheFileIsReplacedByAnother) {
  const TempFolder folder;
  const MappedFile file(folder.write("file", "before"));
  std::filesystem::rename(folder.write("new", "x"), folder / "file");
  EXPECT_EQ(text_of(file), "before");
  file.check_size();
}

TEST(MappedFile, SaysThatAFileWasCut) {
  const TempFolder folder;
  const MappedFile file(folder.write("tokens", "twelve bytes"));
  file.check_size();
  std::filesystem::resize_file(folder / "tokens", 5);
  try {
    file.check_size();
    ADD_FAILURE() << "accepted";
  } catch (const SystemError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr(folder / "tokens"), HasSubstr("cut to 5 bytes, it had 12")));
  }
}

TEST(MappedFile, RefusesWhatIsNoFile) {
  const TempFolder folder;
  EXPECT_THROW(MappedFile(folder / "nothing"), SystemError);
  EXPECT_THROW(MappedFile(folder.path()), SystemError);
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THROW(MappedFile(folder / "pipe"), SystemError) << "and does not wait for a writer";
}

}  // namespace
}  // namespace lockstep

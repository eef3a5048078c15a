#include "lockstep/os/plain_file.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "lockstep/base/error.h"
#include "testing/temp_folder.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TempFolder;
using ::testing::ThrowsMessage;

TEST(PlainFile, ReadsWhatIsThereAndNoMore) {
  const TempFolder folder;
  const PlainFile file(folder.write("file", "0123456789"));
  EXPECT_EQ(file.size(), 10U);
  std::string part(4, ' ');
  EXPECT_EQ(file.read_at(8, std::as_writable_bytes(std::span(part))), 2U);
  EXPECT_EQ(part, "89  ");
  EXPECT_EQ(file.read_at(20, std::as_writable_bytes(std::span(part))), 0U);
}

TEST(PlainFile, IsReadWholeWhateverItsSize) {
  const TempFolder folder;
  for (const std::size_t size : {0UL, 1UL, 65535UL, 65536UL, 65537UL, 200000UL}) {
    std::string content(size, 'x');
    if (size > 0) content.back() = 'y';
    EXPECT_EQ(read_plain_file(folder.write("file", content)), content) << size;
  }
}

// Without the check, each of these would hang or fail with an unhelpful error.
TEST(PlainFile, WhatIsNoFileIsRefusedByNameAtOnce) {
  const TempFolder folder;
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THAT([&] { PlainFile(folder / "pipe"); },
              ThrowsMessage<SystemError>(AllOf(HasSubstr("/pipe\""), HasSubstr("a named pipe"))));
  EXPECT_THAT([&] { PlainFile(folder.path()); }, ThrowsMessage<SystemError>(HasSubstr("a folder")));
  EXPECT_THAT([] { PlainFile("/dev/zero"); },
              ThrowsMessage<SystemError>(AllOf(HasSubstr("/dev/zero"), HasSubstr("a device"))));
  EXPECT_THAT([&] { PlainFile(folder / "missing"); },
              ThrowsMessage<SystemError>(AllOf(HasSubstr("/missing\""), HasSubstr("No such file"))));
}

}  // namespace
}  // namespace lockstep

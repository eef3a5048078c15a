#include "lockstep/os/secret.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <new>

#include "lockstep/base/error.h"
#include "lockstep/os/pipe.h"
#include "testing/temp_folder.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string RAW = "0123456789abcdefghijklmnopqrstuv";
const std::string HEX = "303132333435363738396162636465666768696a6b6c6d6e6f70717273747576";

template <typename Make> std::string refusal(const Make& make) {
  try {
    make();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Secret, IsReadFromRawBytesAndFromHexadecimalDigits) {
  EXPECT_EQ(Secret::from_text(RAW, "x").raw(), RAW);
  EXPECT_EQ(Secret::from_text(HEX, "x").raw(), RAW);
  EXPECT_EQ(Secret::from_text(HEX + "\n", "x").raw(), RAW);
  EXPECT_EQ(Secret::from_text(RAW, "x").as_hex(), HEX);
}

TEST(Secret, AnythingElseIsRefusedWithoutShowingIt) {
  for (const std::string& text : {std::string(), RAW.substr(1), RAW + "wx", HEX.substr(2),
                                  "g" + HEX.substr(1), HEX + "00", HEX + "\n\n"}) {
    const std::string said = refusal([&] { Secret::from_text(text, "the test"); });
    EXPECT_THAT(said, AllOf(HasSubstr("the test"), HasSubstr("64 hexadecimal digits"))) << text;
    if (!text.empty()) EXPECT_THAT(said, Not(HasSubstr(text)));
  }
}

TEST(Secret, RandomOnesDiffer) { EXPECT_FALSE(Secret::random() == Secret::random()); }

TEST(Secret, AFileOfThisUserAloneIsTaken) {
  const testing::TempFolder folder;
  const std::string path = folder.write("secret", HEX + "\n");
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  EXPECT_EQ(Secret::from_file(path).raw(), RAW);
}

TEST(Secret, AFileThatOthersCanReadIsRefusedWithTheCommandThatMendsIt) {
  const testing::TempFolder folder;
  const std::string path = folder.write("secret", HEX);
  for (const mode_t mode : {0640, 0604, 0620, 0602}) {
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
    EXPECT_THAT(refusal([&] { Secret::from_file(path); }),
                AllOf(HasSubstr("chmod 600 " + path), Not(HasSubstr(HEX))))
        << std::oct << mode;
  }
}

TEST(Secret, WhatIsNotAFileIsRefused) {
  const testing::TempFolder folder;
  EXPECT_THAT(refusal([&] { Secret::from_file(folder.path()); }), HasSubstr("not a regular file"));
  EXPECT_THAT(refusal([&] { Secret::from_file(folder / "missing"); }), HasSubstr("cannot be opened"));
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);
  EXPECT_THAT(refusal([&] { Secret::from_file(folder / "fifo"); }), HasSubstr("not a regular file"));
}

TEST(Secret, ADescriptorCanBeReadAgainByEverybodyWhoSharesIt) {
  const Secret secret = Secret::random();
  const Fd fd = secret.to_descriptor();
  EXPECT_TRUE(Secret::from_descriptor(fd.get()) == secret);
  EXPECT_TRUE(Secret::from_descriptor(fd.get()) == secret);
  EXPECT_TRUE(fcntl(fd.get(), F_GETFD) & FD_CLOEXEC);
  EXPECT_EQ(write(fd.get(), "x", 1), -1) << "it is sealed";
}

TEST(Secret, APipeServesOnce) {
  Pipe pipe = make_pipe();
  ASSERT_EQ(write(pipe.write.get(), HEX.data(), HEX.size()), static_cast<ssize_t>(HEX.size()));
  pipe.write.reset();
  EXPECT_EQ(Secret::from_descriptor(pipe.read.get()).raw(), RAW);
}

TEST(Secret, AClosedDescriptorIsNamed) {
  EXPECT_THAT(refusal([] { Secret::from_descriptor(987); }), HasSubstr("987"));
}

TEST(Secret, ItsMemoryIsOverwritten) {
  alignas(Secret) std::array<unsigned char, sizeof(Secret)> place{};
  auto* const secret = new (place.data()) Secret(Secret::from_text(RAW, "x"));
  ASSERT_EQ(std::memcmp(place.data(), RAW.data(), RAW.size()), 0);
  secret->~Secret();
  EXPECT_EQ(std::count(place.begin(), place.end(), 0), static_cast<std::ptrdiff_t>(place.size()));
}

}  // namespace
}  // namespace lockstep

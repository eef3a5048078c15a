#include "cli/plan/sizes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/arguments.h"

namespace lockstep::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(PlanSizes, OfParametersArePowersOf1000) {
  EXPECT_EQ(parse_count("--params", "7.5B"), 7.5e9);
  EXPECT_EQ(parse_count("--params", "124M"), 124e6);
  EXPECT_EQ(parse_count("--params", "1T"), 1e12);
  EXPECT_EQ(parse_count("--params", "12k"), 12e3);
  EXPECT_EQ(parse_count("--params", "25000001"), 25000001);
  EXPECT_EQ(parse_count("--params", "1.1B"), 1100000000) << "1.1 is no binary number: the nearest whole one";
  EXPECT_EQ(parse_count("--params", "2e9"), 2e9);
}

TEST(PlanSizes, OfBytesHaveAUnit) {
  EXPECT_EQ(parse_bytes("--memory", "80GB"), 80e9);
  EXPECT_EQ(parse_bytes("--memory", "16GiB"), 17179869184);
  EXPECT_EQ(parse_bytes("--memory", "1.5 TB"), 1.5e12);
  EXPECT_EQ(parse_bytes("--memory", "4096B"), 4096);
  EXPECT_EQ(parse_bytes("--memory", "2KiB"), 2048);
}

TEST(PlanSizes, RefuseAnythingElse) {
  for (const char* text : {"", "B", "x", "0", "-1", "-7.5B", "0.4", "inf", "nan", "nanB", "7.5G", "7.5 Bx",
                           "7,5B", "1e300", "1000001T", "0x10"})
    EXPECT_THAT(
        [&] { parse_count("--params", text); },
        ThrowsMessage<UsageError>(AllOf(HasSubstr("--params takes a number such as"), HasSubstr(text))))
        << text;
  for (const char* text : {"", "80", "80G", "80 GB ", "GB", "-1GB", "0GB", "1e30GB", "80gb"})
    EXPECT_THAT([&] { parse_bytes("--memory", text); },
                ThrowsMessage<UsageError>(HasSubstr("--memory takes a number of bytes with its unit")))
        << text;
}

TEST(PlanSizes, AreWrittenWithThreeDigits) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(999), "999 B");
  EXPECT_EQ(bytes_text(1000), "1.00 kB");
  EXPECT_EQ(bytes_text(120e9), "120 GB");
  EXPECT_EQ(bytes_text(31.40625e9), "31.4 GB");
  EXPECT_EQ(bytes_text(1.875e9), "1.88 GB");
  EXPECT_EQ(bytes_text(41.25e9), "41.3 GB");
  EXPECT_EQ(bytes_text(9.996e9), "10.0 GB");
  EXPECT_EQ(bytes_text(99.96e9), "100 GB");
  EXPECT_EQ(bytes_text(999.4e9), "999 GB");
  EXPECT_EQ(bytes_text(999.6e9), "1.00 TB");
  EXPECT_EQ(bytes_text(5e18), "5000 PB");
  EXPECT_EQ(count_text(7.5e9), "7.50 B");
  EXPECT_EQ(count_text(124439808), "124 M");
  EXPECT_EQ(count_text(12), "12");
}

}  // namespace
}  // namespace lockstep::cli

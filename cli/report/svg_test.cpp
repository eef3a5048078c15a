#include "cli/report/svg.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lockstep::cli {
namespace {

using ::testing::ElementsAre;

TEST(ReportText, IsEscaped) {
  EXPECT_EQ(escaped("<a href=\"x\">&'"), "&lt;a href=&quot;x&quot;&gt;&amp;&#39;");
  EXPECT_EQ(escaped("a\nb"), "a\\x0ab");
  EXPECT_LT(escaped(std::string(5000, 'a')).size(), 300U);
  EXPECT_EQ(escaped_whole(std::string(5000, '<')).size(), 20000U);
}

TEST(ReportNumbers, AreShort) {
  EXPECT_EQ(number_text(0.25), "0.25");
  EXPECT_EQ(number_text(-std::numeric_limits<double>::infinity()), "-Infinity");
  EXPECT_EQ(ms_text(1.5e6), "1.50 ms");
  EXPECT_EQ(ms_text(123.4e6), "123 ms");
  EXPECT_EQ(ms_text(12'300), "0.0123 ms");
  EXPECT_EQ(coordinate(12.5), "12.5");
  EXPECT_EQ(coordinate(-0.001), "0");
}

TEST(ReportScale, IsLinear) {
  const Scale scale(10, 20, 100, 300);
  EXPECT_DOUBLE_EQ(scale(10), 100);
  EXPECT_DOUBLE_EQ(scale(12.5), 150);
  EXPECT_DOUBLE_EQ(scale(20), 300);
  EXPECT_THAT(scale.ticks(5), ElementsAre(10, 12, 14, 16, 18, 20));
  EXPECT_THAT(Scale(-1, 1, 0, 1).ticks(4), ElementsAre(-1, -0.5, 0, 0.5, 1));
}

TEST(ReportScale, HasARangeWhateverItIsGiven) {
  constexpr double INF = std::numeric_limits<double>::infinity();
  for (const Scale& scale :
       {Scale(3, 3, 0, 100), Scale(0, 0, 0, 100), Scale(INF, -INF, 0, 100), Scale(std::nan(""), 1, 0, 100),
        Scale(-1e308, 1e308, 0, 100), Scale(-7, -7, 0, 100)}) {
    EXPECT_LT(scale.low(), scale.high());
    EXPECT_DOUBLE_EQ(scale(scale.low()), 0);
    EXPECT_DOUBLE_EQ(scale(scale.low() / 2 + scale.high() / 2), 50);
    EXPECT_LE(std::abs(scale(1e308)), 200);
    EXPECT_LE(scale.ticks(5).size(), 11U);
    EXPECT_GE(scale.ticks(5).size(), 2U);
  }
}

}  // namespace
}  // namespace lockstep::cli

#include "cli/bench_tune.h"

#include <gtest/gtest.h>

namespace lockstep::cli {
namespace {

using Row = std::vector<std::optional<double>>;

// Rows: inline, one_shot, two_shot, window, staged.
std::string best(const std::vector<std::size_t>& bytes, const std::array<Row, shared::PATH_COUNT>& rows) {
  return describe(best_paths({bytes, rows}));
}

constexpr std::nullopt_t NOTHING = std::nullopt;

TEST(BestPaths, TakesTheFastestOfEachSize) {
  EXPECT_EQ(best({8, 1024, 65536, 1048576}, {Row{1, NOTHING, NOTHING, NOTHING}, Row{2, 2, 30, 900},
                                             Row{3, 3, 20, 400}, Row{4, 4, 25, 300}, Row{5, 5, 50, 500}}),
            "inline:8,one_shot:1024,two_shot:65536,window");
}

TEST(BestPaths, LeavesOutWhatIsNeverTheFastest) {
  EXPECT_EQ(best({8, 1024, 65536},
                 {Row{1, NOTHING, NOTHING}, Row{2, 2, 30}, Row{3, 3, 31}, Row{4, 4, 15}, Row{5, 5, 50}}),
            "inline:8,one_shot:1024,window");
  EXPECT_EQ(best({8, 1024}, {Row{9, NOTHING}, Row{9, 9}, Row{9, 9}, Row{9, 9}, Row{1, 1}}), "staged");
}

TEST(BestPaths, IsNotLedByNoise) {
  EXPECT_EQ(
      best({1024, 2048, 4096, 8192}, {Row{NOTHING, NOTHING, NOTHING, NOTHING}, Row{10, 10.2, 10, 10},
                                      Row{10.3, 10, 10.3, 10.3}, Row{90, 90, 90, 90}, Row{90, 90, 90, 90}}),
      "one_shot");
}

TEST(BestPaths, HasNoMoreRangesThanATableHolds) {
  // one_shot and staged in turns: seven ranges would be best, but a table has five; the cheapest exceptions
  // are given up.
  EXPECT_EQ(best({1, 2, 3, 4, 5, 6, 7}, {Row(7, NOTHING), Row{10, 11, 10, 20, 10, 20, 10}, Row(7, 90),
                                         Row(7, 90), Row{20, 10, 20, 10, 20, 10, 20}}),
            "one_shot:3,staged:4,one_shot:5,staged:6,one_shot");
}

TEST(BestPaths, CanBeGivenToTheLibrary) {
  const std::string text =
      best({8, 1024, 65536, 1048576}, {Row{1, NOTHING, NOTHING, NOTHING}, Row{2, 2, 30, 900},
                                       Row{3, 3, 20, 400}, Row{4, 4, 25, 300}, Row{5, 5, 50, 500}});
  EXPECT_EQ(describe(shared::parse_paths(text)), text);
}

}  // namespace
}  // namespace lockstep::cli

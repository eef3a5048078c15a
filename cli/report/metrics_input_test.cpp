#include "cli/report/metrics_input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "cli/report/curves.h"
#include "lockstep/base/error.h"

namespace lockstep::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::ThrowsMessage;

TEST(ReportMetrics, JsonLinesAreCurvesOverSteps) {
  const MetricsTable table = parse_json_lines(
      "{\"step\": 10, \"epoch\": 1, \"loss\": 2.5}\n\n{\"step\": 20, \"epoch\": 2, \"loss\": \"NaN\", "
      "\"lr\": 0.1}\n"
      "{\"step\": 30, \"epoch\": 2, \"loss\": null, \"note\": \"a\"}\n{\"seconds\": 12.5, \"device\": "
      "\"cpu\"}\n",
      "run.jsonl");
  EXPECT_EQ(table.x, "step");
  EXPECT_EQ(table.rows, 4U);
  ASSERT_EQ(table.curves.size(), 2U);
  EXPECT_EQ(table.curves[0].key, "loss");
  ASSERT_EQ(table.curves[0].points.size(), 2U);
  EXPECT_EQ(table.curves[0].points[0].x, 10);
  EXPECT_EQ(table.curves[0].points[0].y, 2.5);
  EXPECT_TRUE(std::isnan(table.curves[0].points[1].y));
  EXPECT_EQ(table.curves[1].key, "lr");
  EXPECT_EQ(table.curves[1].points[0].x, 20);
  EXPECT_THAT(table.remarks, ElementsAre(Pair("seconds", "12.5"), Pair("device", "cpu")));
  EXPECT_THAT(table.not_drawn, ElementsAre("note"));
}

TEST(ReportMetrics, WithoutStepsEpochsAndWithoutThoseRowsAreTheX) {
  EXPECT_EQ(parse_json_lines("{\"epoch\": 3, \"loss\": 1}", "a").x, "epoch");
  EXPECT_EQ(parse_json_lines("{\"epoch\": 3, \"loss\": 1}", "a").curves[0].points[0].x, 3);
  const MetricsTable table = parse_json_lines("{\"loss\": 1}\n{\"loss\": 0.5}\n", "a");
  EXPECT_EQ(table.x, "row");
  EXPECT_EQ(table.curves[0].points[1].x, 2);
  EXPECT_EQ(parse_json_lines("", "a").rows, 0U);
}

TEST(ReportMetrics, CsvIsTheSame) {
  const MetricsTable table =
      parse_csv_metrics("epoch,\"a, b\",note\n1,0.5,x\n2,Infinity,y\n,,whole\n", "run.csv");
  EXPECT_EQ(table.x, "epoch");
  ASSERT_EQ(table.curves.size(), 1U);
  EXPECT_EQ(table.curves[0].key, "a, b");
  EXPECT_EQ(table.curves[0].points[0].y, 0.5);
  EXPECT_TRUE(std::isinf(table.curves[0].points[1].y));
  EXPECT_THAT(table.remarks, ElementsAre(Pair("note", "whole")));
  EXPECT_THAT(table.not_drawn, ElementsAre("note"));
}

TEST(ReportMetrics, ABrokenFileIsNamed) {
  for (const char* text : {"{\"step\": 1}\n{\"step\": ", "{\"step\": 1}\n[1]\n", "{}\nstep 4\n"}) {
    EXPECT_THAT([&] { parse_json_lines(text, "run.jsonl"); },
                ThrowsMessage<FormatError>(AllOf(HasSubstr("\"run.jsonl\""), HasSubstr("line 2"))))
        << text;
  }
  EXPECT_THAT([] { parse_csv_metrics("a,b\n1\n", "run.csv"); },
              ThrowsMessage<FormatError>(AllOf(HasSubstr("\"run.csv\""), HasSubstr("row 2 has 1 fields"))));
  EXPECT_THAT([] { parse_csv_metrics("a\n\"1", "run.csv"); },
              ThrowsMessage<FormatError>(HasSubstr("\"run.csv\"")));
}

TEST(ReportCharts, PutTrainingAndTestTogether) {
  EXPECT_EQ(chart_key("train_loss"), "loss");
  EXPECT_EQ(chart_key("validation/loss"), "loss");
  EXPECT_EQ(chart_key("test_"), "test_");
  EXPECT_EQ(chart_key("trained_loss"), "trained_loss");
  const std::vector<MetricsTable> tables = {
      parse_json_lines("{\"epoch\": 1, \"train_loss\": 2, \"test_loss\": 3, \"lr\": 1}", "a"),
      parse_json_lines("{\"step\": 1, \"train_loss\": 2}", "b")};
  const std::vector<CurveChart> charts = charts_of(tables);
  ASSERT_EQ(charts.size(), 3U) << "loss over epochs, loss over steps, lr over epochs";
  ASSERT_EQ(charts[0].series.size(), 2U);
  EXPECT_EQ(charts[0].series[1].name, "test_loss (a)");
  EXPECT_EQ(charts[1].x, "step");
  EXPECT_EQ(charts[2].key, "lr");
}

TEST(ReportCharts, ThinnedCurvesKeepTheirPeaks) {
  std::vector<CurvePoint> points;
  for (int i = 0; i < 10000; ++i) points.push_back({static_cast<double>(i), 1});
  points[4321].y = 100;
  points[8765].y = -100;
  points[77].y = std::nan("");
  const std::vector<CurvePoint> few = thinned(points, 100);
  EXPECT_LE(few.size(), 100U);
  const auto has = [&](double x, double y) {
    return std::any_of(few.begin(), few.end(), [&](const CurvePoint& p) { return p.x == x && p.y == y; });
  };
  EXPECT_TRUE(has(4321, 100));
  EXPECT_TRUE(has(8765, -100));
  EXPECT_TRUE(std::any_of(few.begin(), few.end(), [](const CurvePoint& p) { return std::isnan(p.y); }));
  EXPECT_EQ(thinned(points, 10000).size(), 10000U);
}

}  // namespace
}  // namespace lockstep::cli

#include "cli/plan/pipeline_picture.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <string>

namespace lockstep::cli::pipeline_picture_test {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(PipelinePicture, HasABoxForEachAction) {
  const std::string svg =
      pipeline_svg(pipeline_timeline(pipeline_schedule({.stages = 3, .micro_batches = 5})));
  EXPECT_THAT(svg, AllOf(StartsWith("<svg xmlns=\"http://www.w3.org/2000/svg\" "), EndsWith("</svg>\n"),
                         HasSubstr("1f1b: 3 stages, 5 micro-batches; time 21, bubble 28.57 %"),
                         HasSubstr("<title>B4: 17 to 19</title>"), HasSubstr(">rank 2</text>")));
  EXPECT_EQ(count_of(svg, "<rect class=\"f\""), 3U * 5 + 1);  // and the key
  EXPECT_EQ(count_of(svg, "<rect class=\"b\""), 3U * 5 + 1);
  EXPECT_EQ(count_of(svg, "<rect class=\"w\""), 0U);
  EXPECT_EQ(count_of(svg, "<g "), count_of(svg, "</g>"));
}

// The first box begins at the left edge, the last one ends at the right edge: pixels are to scale.
TEST(PipelinePicture, IsToScale) {
  const std::string svg = pipeline_svg(pipeline_timeline(
      pipeline_schedule({.kind = PipelineScheduleKind::GPIPE, .stages = 1, .micro_batches = 1})));
  EXPECT_THAT(svg, AllOf(HasSubstr(R"(<rect class="f" x="70" y="40" width="200" height="30">)"),
                         HasSubstr(R"(<rect class="b" x="270" y="40" width="400" height="30">)")));
}

TEST(PipelinePicture, PalesLaterChunks) {
  const std::string svg = pipeline_svg(
      pipeline_timeline(pipeline_schedule({.stages = 2, .micro_batches = 2, .virtual_stages = 3})));
  EXPECT_EQ(count_of(svg, "fill-opacity=\"1\""), 8U);
  EXPECT_EQ(count_of(svg, "fill-opacity=\"0.68\""), 8U);
  EXPECT_EQ(count_of(svg, "fill-opacity=\"0.35\""), 8U);
  EXPECT_THAT(svg, HasSubstr(">F1c</text>"));
}

// The first stage's backward is whole, those of the others have two halves: a box each, and one for the key.
TEST(PipelinePicture, HasAKeyForWhatAnyRankDoes) {
  const std::string svg = pipeline_svg(pipeline_timeline(
      pipeline_schedule({.kind = PipelineScheduleKind::ZB_H1, .stages = 2, .micro_batches = 3})));
  for (const char* kind : {"b", "i", "w"})
    EXPECT_EQ(count_of(svg, std::string("<rect class=\"") + kind + "\""), 3U + 1) << kind;
}

TEST(PipelinePicture, OfManyMicroBatchesHasNoLabels) {
  const std::string svg =
      pipeline_svg(pipeline_timeline(pipeline_schedule({.stages = 2, .micro_batches = 2000})));
  EXPECT_THAT(svg, AllOf(HasSubstr("width=\"6090\""), Not(HasSubstr(">F7</text>"))));
}

}  // namespace
}  // namespace lockstep::cli::pipeline_picture_test

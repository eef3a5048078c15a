#include "lockstep/schedules/pipeline_chart.h"

#include <gmock/gmock.h>

namespace lockstep::pipeline_chart_test {
namespace {

std::string chart_of(const PipelineShape& shape, const PipelineTimes& times = {}) {
  return to_text(pipeline_timeline(pipeline_schedule(shape), times));
}

// Figure 2c of the GPipe paper.
TEST(PipelineChart, OfGPipeIsItsPapersFigure) {
  EXPECT_EQ(
      chart_of({.kind = PipelineScheduleKind::GPIPE, .stages = 4, .micro_batches = 4},
               {.forward = 1, .backward_input = 0.5, .backward_weight = 0.5, .transfer = 0, .sizes = {}}),
      "rank 0  F0 F1 F2 F3                   B3 B2 B1 B0\n"
      "rank 1     F0 F1 F2 F3             B3 B2 B1 B0\n"
      "rank 2        F0 F1 F2 F3       B3 B2 B1 B0\n"
      "rank 3           F0 F1 F2 F3 B3 B2 B1 B0\n");
}

TEST(PipelineChart, IsToScale) {
  EXPECT_EQ(chart_of({.stages = 2, .micro_batches = 3}),
            "rank 0  F0 F1       B0--- F2 B1---    B2---\n"
            "rank 1     F0 B0--- F1 B1--- F2 B2---\n");
}

// The figure of Megatron's paper: the upper half of figure 4, in the first group.
TEST(PipelineChart, HasALetterForEachChunk) {
  EXPECT_EQ(chart_of({.stages = 2, .micro_batches = 2, .virtual_stages = 2}),
            "rank 0  F0a F1a F0b F1b         B0b----     B1b---- B0a---- B1a----\n"
            "rank 1      F0a F1a F0b B0b---- F1b B1b---- B0a---- B1a----\n");
}

TEST(PipelineChart, LeavesRoomForLargeNumbersAndUnequalActions) {
  const std::string text =
      chart_of({.stages = 1, .micro_batches = 11},
               {.forward = 1, .backward_input = 2, .backward_weight = 0, .transfer = 0, .sizes = {}});
  EXPECT_THAT(text, ::testing::StartsWith("rank 0  F0  B0----- F1  B1----- "));
  EXPECT_THAT(text, ::testing::EndsWith("F10 B10----\n"));
  EXPECT_EQ(
      chart_of({.kind = PipelineScheduleKind::GPIPE, .stages = 1, .micro_batches = 2},
               {.forward = 2, .backward_input = 1, .backward_weight = 1, .transfer = 0, .sizes = {1, 0.5}}),
      "rank 0  F0--- F1 B1 B0---\n");
}

// Labels of different lengths, ranks of two digits, and weights that take no time.
TEST(PipelineChart, AlignsRanks) {
  const std::string text = chart_of({.stages = 11, .micro_batches = 1});
  EXPECT_THAT(text, ::testing::StartsWith("rank 0   F0  "));
  EXPECT_THAT(text, ::testing::HasSubstr("\nrank 10  "));
  EXPECT_EQ(chart_of({.kind = PipelineScheduleKind::ZB_H1, .stages = 2, .micro_batches = 1},
                     {.forward = 1, .backward_input = 1, .backward_weight = 0, .transfer = 0, .sizes = {}}),
            "rank 0  F0       B0\n"
            "rank 1     F0 I0\n");
}

TEST(PipelineChart, IsLeftOutIfItIsTooWide) {
  const PipelineTimeline timeline = pipeline_timeline(pipeline_schedule({.stages = 2, .micro_batches = 3}));
  EXPECT_EQ(to_text(timeline, 35), "");
  EXPECT_NE(to_text(timeline, 36), "");
}

TEST(PipelineChart, SaysWhatEachRankCosts) {
  EXPECT_EQ(cost_text(pipeline_timeline(pipeline_schedule({.stages = 2, .micro_batches = 4}))),
            "time 15, bubble 20.0 %\n"
            "\n"
            "          idle    bubble   in flight   activations\n"
            "rank 0       3    20.0 %           2             2\n"
            "rank 1       3    20.0 %           1             1\n");
  // Parts of half and of one and a half of the mean: forwards end at 1/2 and 2, backwards at 5 and 6.
  EXPECT_EQ(cost_text(pipeline_timeline(pipeline_schedule({.stages = 2, .work = {.part_sizes = {1, 3}}}))),
            "time 6, bubble 50.0 %\n"
            "\n"
            "          idle    bubble   in flight   activations    size\n"
            "rank 0     4.5    75.0 %           1             1     0.5\n"
            "rank 1     1.5    25.0 %           1             1     1.5\n");
}

}  // namespace
}  // namespace lockstep::pipeline_chart_test

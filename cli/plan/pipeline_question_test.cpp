#include "cli/plan/pipeline_question.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "cli/arguments.h"

namespace lockstep::cli::pipeline_question_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

PipelineWords four_stages(const std::string& name) {
  PipelineWords words;
  words.pipeline = name;
  words.stages = 4;
  words.micro_batches = 8;
  return words;
}

TEST(PipelineQuestion, IsAnsweredByAChartAndCosts) {
  EXPECT_EQ(
      pipeline_text(pipeline_question(four_stages("zb-h1"))),
      "zb-h1: 4 stages, 8 micro-batches\n"
      "forward 1, backward 1 + 1 (inputs + weights), transfer 0\n"
      "F forward, B backward, I gradient of the inputs, W of the weights; the number is the micro-batch\n"
      "\n"
      "rank 0  F0 F1 F2 F3          B0--- F4 B1--- F5 B2--- F6 B3--- F7 B4--- B5--- B6--- B7---\n"
      "rank 1     F0 F1 F2       I0 F3 I1 W0 F4 I2 W1 F5 I3 W2 F6 I4 W3 F7 I5 W4 I6 W5 I7 W6 W7\n"
      "rank 2        F0 F1    I0 F2 I1 F3 I2 W0 F4 I3 W1 F5 I4 W2 F6 I5 W3 F7 I6 W4 I7 W5 W6 W7\n"
      "rank 3           F0 I0 F1 I1 F2 I2 F3 I3 W0 F4 I4 W1 F5 I5 W2 F6 I6 W3 F7 I7 W4 W5 W6 W7\n"
      "\n"
      "time 27, bubble 11.1 %\n"
      "\n"
      "          idle    bubble   in flight   activations\n"
      "rank 0       3    11.1 %           4             4\n"
      "rank 1       3    11.1 %           4             4\n"
      "rank 2       3    11.1 %           4             4\n"
      "rank 3       3    11.1 %           4             4\n"
      "in flight: most micro-batches between forward and backward, their inputs are kept\n"
      "activations: most micro-batches whose activations are kept\n");
}

TEST(PipelineQuestion, HasChunksTimesAndRecompute) {
  PipelineWords words = four_stages("1f1b");
  words.virtual_stages = 2;
  words.times = "2,3,1.5";
  words.transfer = "0.5";
  words.recompute = "except_last";
  const PipelineQuestion question = pipeline_question(words);
  EXPECT_EQ(question.shape.virtual_stages, 2);
  EXPECT_EQ(question.shape.recompute, RecomputeMode::EXCEPT_LAST);
  EXPECT_EQ(question.times.forward, 2);
  EXPECT_EQ(question.times.backward_input, 3);
  EXPECT_EQ(question.times.backward_weight, 1.5);
  EXPECT_EQ(question.times.transfer, 0.5);
  EXPECT_THAT(
      pipeline_text(question),
      AllOf(HasSubstr("1f1b: 4 stages, 8 micro-batches, 2 chunks a rank, recompute except_last\n"),
            HasSubstr("forward 2, backward 3 + 1.5 (inputs + weights), transfer 0.5\n"),
            HasSubstr("B backward, R recompute; the number is the micro-batch, the letter the rank's"),
            HasSubstr("of one chunk each (2 chunks a rank)\n")));
}

// Eight layers in two stages: the V is shortest with parts of 1, 2, 2 and 3.
TEST(PipelineQuestion, CutsLayers) {
  PipelineWords words = four_stages("zb-v");
  words.stages = 2;
  words.micro_batches = 4;
  words.layers = 8;
  EXPECT_THAT(pipeline_question(words).shape.work.part_sizes, ElementsAre(1, 2, 2, 3));
  EXPECT_THAT(pipeline_text(pipeline_question(words)),
              AllOf(HasSubstr("zb-v: 2 stages, 4 micro-batches, 2 chunks a rank, parts of 1 2 2 3\n"),
                    HasSubstr("\ntime 12.25, bubble "), HasSubstr("activations    size\n"),
                    HasSubstr("\nsize: the most of these, in parts of mean size\n")));
  words.layers.reset();
  words.parts = "1,2,2,3";
  words.times = "1,1.5,1";
  const PipelineQuestion question = pipeline_question(words);
  EXPECT_THAT(question.shape.work.part_sizes, ElementsAre(1, 2, 2, 3));
  EXPECT_EQ(question.shape.work.backward_input, 1.5);
  const auto json = nlohmann::json::parse(pipeline_json(question));
  EXPECT_THAT(json["part_sizes"].get<std::vector<double>>(), ElementsAre(1, 2, 2, 3));
  EXPECT_GT(json["ranks"][0]["peak_size"], 0);
}

TEST(PipelineQuestion, CutsABatch) {
  PipelineWords words = four_stages("gpipe");
  words.batch = 18;
  const PipelineQuestion question = pipeline_question(words);
  EXPECT_THAT(question.rows, ElementsAre(3, 3, 2, 2, 2, 2, 2, 2));
  EXPECT_THAT(question.times.sizes, ElementsAre(1, 1, 2.0 / 3, 2.0 / 3, 2.0 / 3, 2.0 / 3, 2.0 / 3, 2.0 / 3));
  EXPECT_THAT(pipeline_text(question), HasSubstr("micro-batches of 3, 3, 2, 2, 2, 2, 2, 2 rows;"));
  words.batch = 3;  // fewer rows than micro-batches, and than stages
  EXPECT_EQ(pipeline_question(words).shape.micro_batches, 3);
  EXPECT_THAT(pipeline_text(pipeline_question(words)), HasSubstr("gpipe: 4 stages, 3 micro-batches\n"));
}

TEST(PipelineQuestion, SaysThatAChartIsTooWide) {
  PipelineWords words = four_stages("1f1b");
  words.micro_batches = 512;
  EXPECT_THAT(pipeline_text(pipeline_question(words)),
              HasSubstr("\nThe chart is too wide for text; --svg FILE draws it.\n"));
}

TEST(PipelineQuestion, IsJson) {
  const auto json = nlohmann::json::parse(pipeline_json(pipeline_question(four_stages("1f1b"))));
  EXPECT_EQ(json["schedule"], "1f1b");
  EXPECT_EQ(json["time"], 33);
  EXPECT_EQ(json["bubble"], 9.0 / 33);
  ASSERT_EQ(json["ranks"].size(), 4U);
  EXPECT_EQ(json["ranks"][0]["peak_in_flight"], 4);
  EXPECT_EQ(json["ranks"][3]["idle"], 9);
  ASSERT_EQ(json["ranks"][3]["actions"].size(), 16U);
  EXPECT_EQ(json["ranks"][3]["actions"][1]["action"], "B0");
  EXPECT_EQ(json["ranks"][3]["actions"][1]["start"], 4);
  EXPECT_EQ(json["ranks"][3]["actions"][1]["end"], 6);
}

TEST(PipelineQuestion, RefusesOtherWords) {
  const auto refused = [](const auto& change, const std::string& part) {
    PipelineWords words = four_stages("1f1b");
    change(words);
    EXPECT_THAT([&] { pipeline_question(words); }, ThrowsMessage<UsageError>(HasSubstr(part)));
  };
  refused([](auto& w) { w.pipeline = "1f1f"; },
          "--pipeline is one of gpipe, 1f1b, zb-h1, zb-v, not \"1f1f\"; did you mean 1f1b?");
  refused([](auto& w) { w.recompute = "full"; },
          "--recompute is one of never, except_last, always, not \"full\"");
  refused([](auto& w) { w.stages.reset(); }, "needs --stages and --micro-batches");
  refused([](auto& w) { w.micro_batches = 1'000'000; }, "is more than 1000000");
  refused([](auto& w) { w.virtual_stages = std::int64_t{1} << 40; }, "is more than 1000000");
  refused([](auto& w) { w.times = "1,2"; }, "--times takes three times, F,B,W");
  refused([](auto& w) { w.times = "1,2,x"; }, "not \"x\"");
  refused([](auto& w) { w.times = "0,1,1"; }, "not \"0\"");
  refused([](auto& w) { w.times = "1,1,-1"; }, "not \"-1\"");
  refused([](auto& w) { w.transfer = "inf"; }, "--transfer takes times such as 1 or 2.5");
  refused([](auto& w) { w.parts = "1,2,x,1"; },
          "--parts takes sizes such as 1 or 2.5, in any unit, not \"x\"");
  refused([](auto& w) { w.parts = "1,2,2,1", w.layers = 8; }, "--layers, which cuts the model, or --parts");
  refused([](auto& w) { w.layers = 1001; }, "--layers cuts up to 1000 layers into up to 32 parts, not 1001");
}

}  // namespace
}  // namespace lockstep::cli::pipeline_question_test

#include "cli/plan/plan_texts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace lockstep::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

PlanQuestion paper_question() {
  PlanQuestion question{.states = {.parameters = 7.5e9, .nodes = 1, .ranks_per_node = 64}};
  question.states.bytes = bytes_per_parameter(question.precision, question.optimizer);
  return question;
}

std::string text_of(const PlanQuestion& question) { return plan_text(question, answer(question)); }

TEST(PlanTexts, AreATable) {
  PlanQuestion question = paper_question();
  question.form = StateForm::PRIVATE;
  question.memory = 80e9;
  EXPECT_EQ(
      text_of(question),
      "7.50 B parameters, bf16 with float32 masters, adamw: 2 + 2 + 12 bytes of parameter, gradient and "
      "optimizer state\n"
      "64 ranks on 1 machine\n"
      "\n"
      "each rank has memory of its own (ZeRO)\n"
      "            parameters    gradients    optimizer        total      machine\n"
      "ddp            15.0 GB      15.0 GB      90.0 GB       120 GB      7.68 TB   40.0 GB too large\n"
      "stage 1        15.0 GB      15.0 GB      1.41 GB      31.4 GB      2.01 TB   fits, 48.6 GB free\n"
      "stage 2        15.0 GB       234 MB      1.41 GB      16.6 GB      1.07 TB   fits, 63.4 GB free\n"
      "stage 3         234 MB       234 MB      1.41 GB      1.88 GB       120 GB   fits, 78.1 GB free\n"
      "\n"
      "80.0 GB, own memory: stage 1 is the first that fits\n");
}

TEST(PlanTexts, HaveBothForms) {
  const std::string text = text_of(paper_question());
  EXPECT_THAT(text,
              AllOf(HasSubstr("memory of its own (ZeRO)"), HasSubstr("share memory (Lockstep)"),
                    HasSubstr("stage 1         234 MB      15.0 GB      1.41 GB      16.6 GB      1.07 TB\n"),
                    Not(HasSubstr("fits")), Not(HasSubstr("live")), Not(HasSubstr("activations"))));
}

TEST(PlanTexts, NameTheLargestLayer) {
  PlanQuestion question = paper_question();
  question.precision = PRECISIONS[0];
  question.states.live = 38597376;
  EXPECT_THAT(text_of(question), AllOf(HasSubstr("B parameters, fp32, adamw"),
                                       HasSubstr("live: the largest layer, 38.6 M parameters\n")));
  question.largest_layer = "w\x1bte";
  EXPECT_THAT(text_of(question), HasSubstr("live: the largest layer, \"w\\x1bte\", of 38.6 M parameters\n"));
}

TEST(PlanTexts, HaveTheActivationsOfEveryChoice) {
  PlanQuestion question = paper_question();
  question.transformer = TransformerShape{.layers = 2, .hidden = 500, .heads = 10, .sequence = 1000};
  question.recompute = Recompute::SELECTIVE;
  question.states.activations = activation_bytes(*question.transformer, question.recompute);
  question.states.buffers = 1e6;
  // s b h = 5e5: 2 (34 + 100), 2 34 + 100, 2 2 + 34 + 100 of them
  EXPECT_THAT(text_of(question),
              AllOf(HasSubstr("none 134 MB, selective 84.0 MB, full 69.0 MB; the table has selective\n"),
                    HasSubstr("optimizer      buffers  activations        total"),
                    HasSubstr("90.0 GB      1.00 MB      84.0 MB       120 GB")));
}

TEST(PlanTexts, SayWhatWouldFit) {
  PlanQuestion question = paper_question();
  question.memory = 1e9;
  EXPECT_THAT(text_of(question),
              HasSubstr("1.00 GB, own memory: none fits; stage 3 does from 120 ranks on\n"
                        "1.00 GB, shared memory: none fits; stage 3 does from 128 ranks on\n"));
  question.stage = ZeroStage::TWO;
  question.form = StateForm::PRIVATE;
  EXPECT_THAT(text_of(question), HasSubstr("none fits; nor does stage 2 on any number of ranks\n"));
}

TEST(PlanTexts, OfJsonAreWholeBytes) {
  PlanQuestion question = paper_question();
  question.memory = 80e9;
  question.transformer = TransformerShape{.layers = 2, .hidden = 500, .heads = 10, .sequence = 1000};
  question.states.activations = activation_bytes(*question.transformer, question.recompute);
  const auto json = nlohmann::json::parse(plan_json(question, answer(question)));
  EXPECT_EQ(json["parameters"], 7500000000);
  EXPECT_EQ(json["ranks"], 64);
  EXPECT_EQ(json["bytes_per_parameter"]["optimizer"], 12);
  ASSERT_EQ(json["rows"].size(), 7U);
  EXPECT_EQ(json["rows"][3]["form"], "private");
  EXPECT_EQ(json["rows"][3]["stage"], 3);
  EXPECT_EQ(json["rows"][3]["total"], 1875000000 + 134000000);
  EXPECT_EQ(json["rows"][3]["machine"], 64 * (1875000000LL + 134000000));
  EXPECT_EQ(json["rows"][0]["fits"], false);
  EXPECT_EQ(json["rows"][1]["fits"], true);
  EXPECT_EQ(json["activations"]["selective"], 84000000);
  EXPECT_EQ(json["recompute"], "none");
  EXPECT_EQ(json["memory"], 80000000000);
  EXPECT_EQ(json["verdicts"][0]["first_stage"], 1);
  question.memory = 2e9;
  const auto tight = nlohmann::json::parse(plan_json(question, answer(question)));
  EXPECT_EQ(tight["verdicts"][0]["first_stage"], nullptr);
  EXPECT_EQ(tight["verdicts"][0]["stage"], 3);
  EXPECT_EQ(tight["verdicts"][0]["ranks"], 65);  // 120e9 / (2e9 - 134e6) = 64.3
  EXPECT_EQ(tight["verdicts"][1]["ranks"], 128);
}

}  // namespace
}  // namespace lockstep::cli

#include "cli/plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::cli {
namespace {

using enum ZeroStage;
using ::testing::ElementsAre;

PlanQuestion question_about(double parameters, std::int64_t nodes, std::int64_t ranks_per_node) {
  PlanQuestion question{
      .states = {.parameters = parameters, .nodes = nodes, .ranks_per_node = ranks_per_node}};
  question.states.bytes = bytes_per_parameter(question.precision, question.optimizer);
  return question;
}

std::vector<std::string> rows_of(const PlanQuestion& question) {
  std::vector<std::string> rows;
  for (const StateRow& row : answer(question).rows)
    rows.push_back(
        std::string(row.form == StateForm::PRIVATE ? "private " : "shared ").append(name_of(row.stage)));
  return rows;
}

TEST(PlanAnswers, HaveTheRowsThatWereAskedFor) {
  PlanQuestion question = question_about(7.5e9, 1, 64);
  EXPECT_THAT(rows_of(question),
              ElementsAre("private ddp", "private stage 1", "private stage 2", "private stage 3",
                          "shared stage 1", "shared stage 2", "shared stage 3"));
  question.stage = TWO;
  EXPECT_THAT(rows_of(question), ElementsAre("private stage 2", "shared stage 2"));
  question.stage = DDP;
  EXPECT_THAT(rows_of(question), ElementsAre("private ddp"));
  question.form = StateForm::SHARED;
  EXPECT_THAT(rows_of(question), ElementsAre("shared ddp"));
  question.stage.reset();
  EXPECT_THAT(rows_of(question),
              ElementsAre("shared ddp", "shared stage 1", "shared stage 2", "shared stage 3"));
}

// 120, 31.4, 16.6 and 1.875 GB.
TEST(PlanAnswers, SayTheFirstStageThatFits) {
  PlanQuestion question = question_about(7.5e9, 1, 64);
  question.form = StateForm::PRIVATE;
  const auto first_in = [&](double memory) {
    question.memory = memory;
    const PlanAnswer plan = answer(question);
    EXPECT_EQ(plan.verdicts.size(), 1U);
    EXPECT_EQ(anything_fits(plan), plan.verdicts[0].first.has_value());
    return plan.verdicts[0].first;
  };
  EXPECT_EQ(first_in(120e9), DDP);
  EXPECT_EQ(first_in(120e9 - 1), ONE);
  EXPECT_EQ(first_in(80e9), ONE);
  EXPECT_EQ(first_in(31e9), TWO);
  EXPECT_EQ(first_in(16e9), THREE);
  EXPECT_EQ(first_in(1.875e9), THREE);
  EXPECT_EQ(first_in(1.8e9), std::nullopt);
}

TEST(PlanAnswers, SayOnHowManyRanksItWouldFit) {
  PlanQuestion question = question_about(7.5e9, 2, 4);
  question.memory = 1e9;
  PlanAnswer plan = answer(question);
  ASSERT_EQ(plan.verdicts.size(), 2U);
  EXPECT_FALSE(anything_fits(plan));
  for (const PlanVerdict& verdict : plan.verdicts) {
    EXPECT_EQ(verdict.first, std::nullopt);
    EXPECT_EQ(verdict.last, THREE);
    EXPECT_EQ(verdict.ranks, 120);  // 120 GB, and 4 divides it
  }
  question.stage = ONE;  // 2 P of parameters and 2 P of gradients stay; shared, a fourth of these parameters
  question.memory = 20e9;
  plan = answer(question);
  EXPECT_EQ(plan.verdicts[0].ranks, std::nullopt);
  EXPECT_EQ(plan.verdicts[1].ranks, 72);  // 15/4 + 15 + 90/W
}

TEST(PlanAnswers, HaveNoVerdictWithoutMemory) {
  const PlanAnswer plan = answer(question_about(7.5e9, 1, 64));
  EXPECT_TRUE(plan.verdicts.empty());
  EXPECT_TRUE(anything_fits(plan));
}

}  // namespace
}  // namespace lockstep::cli

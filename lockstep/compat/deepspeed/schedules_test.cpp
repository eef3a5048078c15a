// Rates against formulas that are written out here, at the steps where a schedule turns.
#include "lockstep/compat/deepspeed/schedules.h"

#include <gmock/gmock.h>

#include <cmath>
#include <numbers>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::compat::deepspeed {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pointwise;
using ::testing::ThrowsMessage;

MATCHER(IsClose, "") {
  return std::abs(std::get<0>(arg) - std::get<1>(arg)) <= 1e-12 * (1 + std::abs(std::get<1>(arg)));
}

std::vector<double> rates(const SchedulePlan& plan, int steps, double base_lr = 0.5) {
  std::vector<double> all;
  for (int step = 0; step < steps; ++step) all.push_back(lr_at(plan, step, base_lr));
  return all;
}

TEST(DeepSpeedSchedules, WarmupIsLogarithmicByDefault) {
  const double ln4 = std::log(4.0);
  EXPECT_THAT(rates(WarmupLR{.warmup_min_lr = 1, .warmup_max_lr = 3, .warmup_num_steps = 4}, 7),
              Pointwise(IsClose(), std::vector<double>{1, 1, 1 + 2 * std::log(2.0) / ln4,
                                                       1 + 2 * std::log(3.0) / ln4, 3, 3, 3}));
}

TEST(DeepSpeedSchedules, WarmupIsLinearIfAsked) {
  EXPECT_THAT(
      rates(WarmupLR{.warmup_max_lr = 8, .warmup_num_steps = 4, .warmup_type = WarmupType::LINEAR}, 7),
      Pointwise(IsClose(), std::vector<double>{0, 0, 2, 4, 6, 8, 8}));
  // Without warmup_max_lr it goes up to the optimiser's rate; one step of warm-up counts as two.
  EXPECT_THAT(rates(WarmupLR{.warmup_num_steps = 1, .warmup_type = WarmupType::LINEAR}, 4, 0.5),
              Pointwise(IsClose(), std::vector<double>{0, 0, 0.25, 0.5}));
}

TEST(DeepSpeedSchedules, WarmupDecayGoesDownToItsLowest) {
  const WarmupDecayLR plan{.total_num_steps = 8,
                           .warmup_min_lr = 1,
                           .warmup_max_lr = 5,
                           .warmup_num_steps = 4,
                           .warmup_type = WarmupType::LINEAR};
  EXPECT_THAT(rates(plan, 12), Pointwise(IsClose(), std::vector<double>{1, 1, 2, 3, 4, 5, 4, 3, 2, 1, 1, 1}));
}

TEST(DeepSpeedSchedules, WarmupCosineEndsAtItsLowestRatio) {
  const WarmupCosineLR plan{.total_num_steps = 6,
                            .warmup_min_ratio = 0.2,
                            .warmup_num_steps = 2,
                            .cos_min_ratio = 0.1,
                            .warmup_type = WarmupType::LINEAR};
  const auto cosine = [](double share) {
    return 0.5 * (0.1 + 0.9 * (1 + std::cos(std::numbers::pi * share)) / 2);
  };
  EXPECT_THAT(rates(plan, 9, 0.5),
              Pointwise(IsClose(), std::vector<double>{0.0, 0.5 * 0.2, 0.5 * (0.2 + 0.8 / 2), cosine(0.25),
                                                       cosine(0.5), cosine(0.75), 0.05, 0.05, 0.05}));
}

TEST(DeepSpeedSchedules, OneCycleGoesUpAndDownAndDecays) {
  const OneCycle plan{.cycle_min_lr = 1,
                      .cycle_max_lr = 5,
                      .decay_lr_rate = 0.5,
                      .cycle_first_step_size = 4,
                      .cycle_second_step_size = 2,
                      .decay_step_size = 2};
  EXPECT_THAT(rates(plan, 10), Pointwise(IsClose(), std::vector<double>{1.0, 2.0, 3.0, 4.0, 5.0, 3.0, 1.0,
                                                                        1 / 1.25, 1 / 1.5, 1 / 1.75}));
  std::vector<double> momenta;
  for (int step = 0; step < 8; ++step) momenta.push_back(*momentum_at(plan, step));
  EXPECT_THAT(momenta,
              Pointwise(IsClose(), std::vector<double>{0.8, 0.875, 0.85, 0.825, 0.8, 0.85, 0.9, 0.9}));
  EXPECT_EQ(momentum_at(OneCycle{.cycle_momentum = false}, 1), std::nullopt);
  EXPECT_EQ(momentum_at(WarmupLR{}, 1), std::nullopt);
}

TEST(DeepSpeedSchedules, OneCycleHasStairs) {
  const OneCycle plan{
      .cycle_min_lr = 0, .cycle_max_lr = 4, .cycle_first_step_size = 4, .cycle_first_stair_count = 2};
  EXPECT_THAT(rates(plan, 10), Pointwise(IsClose(), std::vector<double>{0, 0, 2, 2, 4, 2, 2, 0, 0, 0}));
}

TEST(DeepSpeedSchedules, RangeTestRises) {
  LRRangeTest plan{.lr_range_test_min_lr = 0.1, .lr_range_test_step_size = 2, .lr_range_test_step_rate = 3};
  EXPECT_THAT(rates(plan, 4), Pointwise(IsClose(), std::vector<double>{0.1, 0.1 * 2.5, 0.1 * 4, 0.1 * 5.5}));
  plan.lr_range_test_staircase = true;
  EXPECT_THAT(rates(plan, 4), Pointwise(IsClose(), std::vector<double>{0.1, 0.1, 0.1 * 4, 0.1 * 4}));
}

TEST(DeepSpeedSchedules, RefusesNumbersOutOfRange) {
  const auto refuses = [](const SchedulePlan& plan, const char* says) {
    EXPECT_THAT([&] { check_schedule(plan); }, ThrowsMessage<InvalidArgument>(HasSubstr(says)));
  };
  refuses(WarmupLR{.warmup_num_steps = 0}, "warmup_num_steps is 0 and must be 1 or more");
  refuses(WarmupDecayLR{}, "total_num_steps is 0");
  refuses(OneCycle{.cycle_first_step_size = 0}, "cycle_first_step_size is 0");
  refuses(LRRangeTest{.lr_range_test_step_size = 0}, "lr_range_test_step_size is 0");
}

}  // namespace
}  // namespace lockstep::compat::deepspeed

// The traces are those that PyTorch, Apex, Megatron-LM and DeepSpeed give for the pattern, worked out by hand
// from their sources.
#include "lockstep/amp/loss_scale.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// The scale after each step of the pattern: 'C' clean, 'O' overflow.
std::vector<double> trace(const LossScaleOptions& options, const std::string& pattern = "CCCOOCOCCCCC") {
  LossScale scale(options);
  std::vector<double> values;
  for (const char step : pattern) {
    scale.update(step == 'O');
    values.push_back(scale.value());
  }
  return values;
}

TEST(LossScale, FollowsTorch) {
  EXPECT_THAT(trace({.init_scale = 16, .growth_interval = 2}),
              ElementsAre(16, 32, 32, 16, 8, 8, 4, 4, 8, 8, 16, 16));
}

TEST(LossScale, FollowsMegatron) {
  const auto with = [](int hysteresis) {
    return trace(megatron_loss_scale({.init_scale = 16, .growth_interval = 2, .hysteresis = hysteresis}));
  };
  EXPECT_THAT(with(1), ElementsAre(16, 32, 32, 16, 8, 8, 4, 4, 8, 8, 16, 16));
  EXPECT_THAT(with(2), ElementsAre(16, 32, 32, 32, 16, 16, 8, 8, 16, 16, 32, 32));
}

TEST(LossScale, FollowsDeepSpeed) {
  const auto with = [](int hysteresis, bool consecutive) {
    return trace(deepspeed_loss_scale({.init_scale = 16,
                                       .growth_interval = 2,
                                       .hysteresis = hysteresis,
                                       .consecutive_hysteresis = consecutive}));
  };
  EXPECT_THAT(with(1, false), ElementsAre(16, 16, 32, 16, 8, 8, 4, 4, 4, 8, 8, 16));
  EXPECT_THAT(with(2, false), ElementsAre(16, 16, 32, 32, 16, 16, 8, 8, 8, 16, 16, 32));
  EXPECT_THAT(with(2, true), ElementsAre(16, 16, 32, 32, 16, 16, 16, 16, 16, 32, 32, 64));
}

TEST(LossScale, ApexStopsAtItsCeiling) {
  LossScaleOptions options = apex_loss_scale();
  EXPECT_EQ(options.init_scale, 65536);
  options.init_scale = 16777216.0 / 2;
  options.growth_interval = 1;
  EXPECT_THAT(trace(options, "CCCO"), ElementsAre(16777216, 16777216, 16777216, 8388608));
}

TEST(LossScale, DoesNotGrowBeyondFloat32) {
  const double large = 0x1p127;
  EXPECT_THAT(trace({.init_scale = large, .growth_interval = 1}, "CC"), ElementsAre(large, large));
}

TEST(LossScale, KeepsToTheFloor) {
  EXPECT_THAT(trace({.init_scale = 4, .min_scale = 1}, "OOOO"), ElementsAre(2, 1, 1, 1));
  // Without one it falls on, as torch's does.
  EXPECT_EQ(trace({.init_scale = 1}, "OOO").back(), 0.125);
}

TEST(LossScale, DeepSpeedGivesUpAtTheFloor) {
  LossScale scale(deepspeed_loss_scale({.init_scale = 2, .hysteresis = 1}));
  scale.update(true);
  EXPECT_EQ(scale.value(), 1);
  EXPECT_THAT([&] { scale.update(true); }, ThrowsMessage<InvalidArgument>(HasSubstr("lowest scale, 1")));
}

TEST(LossScale, RefusesWhatCannotBe) {
  const auto refuses = [](const LossScaleOptions& options, const char* what) {
    EXPECT_THAT([&] { LossScale{options}; }, ThrowsMessage<InvalidArgument>(HasSubstr(what)));
  };
  refuses({.init_scale = 0}, "init_scale");
  refuses({.init_scale = 1e39}, "init_scale");
  refuses({.growth_factor = 1}, "growth_factor");
  refuses({.backoff_factor = 1}, "backoff_factor");
  refuses({.growth_interval = 0}, "growth_interval");
  refuses({.hysteresis = 0}, "hysteresis");
  refuses({.min_scale = 2, .max_scale = 1}, "min_scale");
}

}  // namespace
}  // namespace lockstep

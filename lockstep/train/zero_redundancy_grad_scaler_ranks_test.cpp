// A GradScaler over an optimiser that ranks share out: they skip together, and step as without sharing.
#include <gmock/gmock.h>

#include <limits>

#include "lockstep/amp/grad_scaler.h"
#include "lockstep/optim/adam.h"
#include "lockstep/parallel/zero/zero_redundancy_optimizer.h"
#include "testing/ranks.h"
#include "testing/shared_out_training.h"

namespace lockstep {
namespace {

using testing::known_parameters;

void expect_bits_of(const std::vector<at::Tensor>& have, const std::vector<at::Tensor>& want) {
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(have[i].equal(want[i])) << "parameter " << i;
}

RANKS_TEST(ZeroRedundancyGradScaler, SkipsAStepOnAllRanksForAnOverflowOnOne, Ranks(1, 2, 3, 4)) {
  const auto parameters = known_parameters(at::kFloat);
  ZeroRedundancyOptimizer<optim::AdamW> optimizer(parameters, optim::AdamWOptions(0.01));
  GradScaler scaler({.init_scale = 8});
  const auto backward = [&](double value) {
    for (const at::Tensor& parameter : parameters) parameter.mutable_grad() = at::full_like(parameter, value);
    (void)scaler.scale(at::ones({}));
  };
  backward(8);
  if (rank() == size() - 1) parameters[3].mutable_grad().fill_(std::numeric_limits<float>::infinity());
  EXPECT_FALSE(scaler.step(optimizer));
  scaler.update();
  EXPECT_EQ(scaler.get_scale(), 4);
  expect_bits_of(parameters, known_parameters(at::kFloat));
  backward(4);  // 1, scaled
  EXPECT_TRUE(scaler.step(optimizer));
  const auto want = known_parameters(at::kFloat);
  optim::AdamW whole(want, optim::AdamWOptions(0.01));
  for (const at::Tensor& parameter : want) parameter.mutable_grad() = at::ones_like(parameter);
  whole.step();
  expect_bits_of(parameters, want);
}

}  // namespace
}  // namespace lockstep

// One rank's overflow is every rank's.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <limits>

#include "lockstep/amp/grad_scaler.h"
#include "lockstep/base/error.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

constexpr float INF = std::numeric_limits<float>::infinity();

RANKS_TEST(GradScaler, AllRanksSkipTogether, Ranks(1, 2, 3, 4), EveryBackend()) {
  const at::Tensor w = torch::ones({2}, torch::requires_grad());
  const at::Tensor v = torch::ones({3}, torch::requires_grad());
  torch::optim::SGD optimizer({w, v}, 0.25);
  GradScaler scaler({.init_scale = 16, .growth_interval = 2},
                    {.process_group = world(), .parameters = {{"w", w}, {"v", v}}});
  int taken = 0;
  for (int step = 0; step < 4 * size(); ++step) {
    optimizer.zero_grad();
    const bool someone = step % 4 == 1;                // a rank overflows in v ...
    const bool another = step % 4 == 1 && size() > 1;  // ... and the next one in both
    const int who = step / 4;
    const float v_grad = someone && rank() == who ? INF : 1.0F;
    const float w_grad = another && rank() == (who + 1) % size() ? INF : 1.0F;
    scaler.scale((w * w_grad).sum() + (v * v_grad).sum()).backward();
    if (step % 2 == 0) scaler.unscale_(optimizer);
    EXPECT_EQ(scaler.step(optimizer), !someone);
    taken += someone ? 0 : 1;
    scaler.update();
    if (!someone) continue;
    EXPECT_EQ(scaler.last_overflow()->parameter, another ? "w" : "v");
    EXPECT_EQ(scaler.last_overflow()->rank, another ? (who + 1) % size() : who);
  }
  EXPECT_TRUE(w.equal(torch::full({2}, 1 - 0.25F * static_cast<float>(taken))));
  // Of four steps one shrinks the scale and of the three clean ones two in a row make it grow: C O CC|C O
  // CC|...
  LossScale rule({.init_scale = 16, .growth_interval = 2});
  for (int step = 0; step < 4 * size(); ++step) rule.update(step % 4 == 1);
  EXPECT_EQ(scaler.get_scale(), rule.value());
}

// State that was loaded on rank 0 alone, as a program does that forgets the others.
RANKS_TEST(GradScaler, ScalesThatDifferAreAMismatchWithBoth, Ranks(2, 3), EveryBackend()) {
  const at::Tensor w = torch::ones({2}, torch::requires_grad());
  torch::optim::SGD optimizer({w}, 0.25);
  GradScaler scaler({.init_scale = 65536}, {.process_group = world()});
  if (rank() == 0) scaler.load_state_dict(GradScaler({.init_scale = 1024}).state_dict());
  scaler.scale(w.sum()).backward();
  EXPECT_THAT([&] { scaler.unscale_(optimizer); },
              ::testing::ThrowsMessage<Mismatch>(::testing::AllOf(
                  ::testing::HasSubstr("for the overflows of a GradScaler with the scale 1024"),
                  ::testing::HasSubstr("with the scale 65536"), ::testing::HasSubstr("load_state_dict()"),
                  ::testing::HasSubstr("alike on all ranks"))));
}

}  // namespace
}  // namespace lockstep

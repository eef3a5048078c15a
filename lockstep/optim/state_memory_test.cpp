// Optimisers whose state is in a file, beside the same ones whose state is in memory, bit for bit.
#include "lockstep/optim/state_memory.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "lockstep/base/error.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/lamb.h"
#include "lockstep/optim/lars.h"
#include "lockstep/optim/sgd.h"
#include "testing/temp_folder.h"
#include "testing/tensors.h"

namespace lockstep::optim {
namespace {

// More than one stretch of the step, a channels_last one, a small one, none.
std::vector<at::Tensor> make_parameters() {
  std::vector<at::Tensor> parameters = {
      testing::random_values({2500, 2000}, 1, at::kFloat),
      testing::random_values({2, 3, 5, 7}, 2, at::kFloat).contiguous(at::MemoryFormat::ChannelsLast),
      testing::random_values({3}, 3, at::kFloat), at::zeros({0})};
  for (at::Tensor& parameter : parameters) parameter.requires_grad_();
  return parameters;
}

template <typename Optimizer> void step(Optimizer& optimizer, std::uint64_t number) {
  for (at::Tensor& parameter : optimizer.param_groups()[0].params())
    parameter.mutable_grad() =
        at::full_like(parameter, 0.1) + testing::random_values({1}, number, at::kFloat);
  optimizer.step();
}

template <typename Optimizer, typename Options> void expect_same_bits(const Options& options) {
  const testing::TempFolder folder;
  const auto file = std::make_shared<FileMemory>(folder.path());
  Optimizer in_memory(make_parameters(), options);
  Optimizer in_file(make_parameters(), options);
  in_file.keep_state_in(file);
  for (std::uint64_t number = 0; number < 3; ++number) {
    step(in_memory, number);
    step(in_file, number);
  }
  EXPECT_GT(file->bytes(), 0U);
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_TRUE(in_memory.param_groups()[0].params()[i].equal(in_file.param_groups()[0].params()[i])) << i;
  const NamedTensors expected = in_memory.state_dict();
  const NamedTensors state = in_file.state_dict();
  ASSERT_EQ(state.size(), expected.size());
  for (std::size_t i = 0; i < state.size(); ++i)
    EXPECT_TRUE(state[i].second.equal(expected[i].second)) << state[i].first;
}

TEST(StateMemory, DoesNotShowInTheBitsOfAdamW) { expect_same_bits<AdamW>(AdamWOptions(1e-2).amsgrad(true)); }
TEST(StateMemory, DoesNotShowInTheBitsOfMomentum) { expect_same_bits<SGD>(SGDOptions(0.1).momentum(0.9)); }
TEST(StateMemory, DoesNotShowInTheBitsOfLarsAndLamb) {
  expect_same_bits<LARS>(LARSOptions(0.1).momentum(0.9));
  expect_same_bits<LAMB>(LAMBOptions(1e-2));
}

TEST(StateMemory, IsChosenBeforeTheFirstStep) {
  const testing::TempFolder folder;
  AdamW optimizer(make_parameters(), AdamWOptions(1e-2));
  step(optimizer, 0);
  EXPECT_THROW(optimizer.keep_state_in(std::make_shared<FileMemory>(folder.path())), InvalidArgument);
}

TEST(StateMemory, ALoadedStateIsInTheFile) {
  const testing::TempFolder folder;
  const auto file = std::make_shared<FileMemory>(folder.path());
  AdamW first(make_parameters(), AdamWOptions(1e-2));
  step(first, 0);
  AdamW second(first.param_groups()[0].params(), AdamWOptions(1e-2));
  second.keep_state_in(file);
  second.load_state_dict(first.state_dict());
  EXPECT_GE(file->bytes(), 2 * 4 * 2500U * 2000U);
  EXPECT_TRUE(second.state_dict()[1].second.equal(first.state_dict()[1].second));
}

}  // namespace
}  // namespace lockstep::optim

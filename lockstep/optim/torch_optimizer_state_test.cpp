#include "lockstep/optim/torch_optimizer_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>
#include <torch/types.h>

#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/optim/adam.h"
#include "lockstep/tensor/state_dict.h"
#include "testing/temp_folder.h"
#include "testing/tensors.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::random_values;
using testing::TempFolder;

std::vector<at::Tensor> parameters() {
  return {random_values({3, 4}, 1), random_values({5}, 2, at::kFloat), random_values({}, 3)};
}

std::vector<at::Tensor> copies(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> copied;
  for (const at::Tensor& tensor : tensors) copied.push_back(tensor.clone());
  return copied;
}

// The last parameter has a gradient in every third step only.
void train(torch::optim::Optimizer& optimizer, const std::vector<at::Tensor>& all, int first, int last) {
  for (int s = first; s < last; ++s) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      const bool has_gradient = i < 2 || s % 3 == 2;
      const int seed = 10 * s + static_cast<int>(i);
      all[i].mutable_grad() =
          has_gradient ? random_values(all[i].sizes(), seed, all[i].scalar_type()) : at::Tensor();
    }
    optimizer.step();
  }
}

template <typename O, typename Options>
std::unique_ptr<O> made(const std::vector<at::Tensor>& all, const Options& first, const Options& second) {
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<at::Tensor>{all[1]}, std::make_unique<Options>(first));
  groups.emplace_back(std::vector<at::Tensor>{all[2], all[0]}, std::make_unique<Options>(second));
  return std::make_unique<O>(groups, first);
}

// Trains `steps` steps without a break, by torch::save and torch::load, and by a file of state_dict(); all
// three end with equal bits.
template <typename O, typename Options>
void expect_equal_bits(const Options& first, const Options& second, int before = 4, int steps = 9) {
  const TempFolder folder;
  const auto expected = parameters(), all = parameters();
  const auto whole = made<O>(expected, first, second);
  train(*whole, expected, 0, steps);
  const auto saved = made<O>(all, first, second);
  train(*saved, all, 0, before);
  std::stringstream archive;
  torch::save(*saved, archive);
  save_state_dict(state_dict(*saved), folder / "optimizer.safetensors");
  const auto by_archive = copies(all), by_state = copies(all);
  const Options other(0.77);
  const auto from_archive = made<O>(by_archive, other, other), from_state = made<O>(by_state, other, other);
  torch::load(*from_archive, archive);
  train(*from_archive, by_archive, before, steps);
  load_state_dict(*from_state, load_tensors(folder / "optimizer.safetensors"));
  train(*from_state, by_state, before, steps);
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_TRUE(torch::equal(by_archive[i], expected[i])) << i;
    EXPECT_TRUE(torch::equal(by_state[i], expected[i])) << i;
  }
  const auto options_of = [](const O& optimizer, std::size_t group) -> const Options& {
    return dynamic_cast<const Options&>(optimizer.param_groups()[group].options());
  };
  for (const std::size_t group : {0, 1})
    EXPECT_TRUE(options_of(*from_state, group) == options_of(*saved, group)) << group;
}

TEST(TorchOptimizerState, TrainingGoesOnWithEqualBits) {
  using namespace torch::optim;  // NOLINT(google-build-using-namespace): the test is about them
  expect_equal_bits<SGD>(SGDOptions(0.1), SGDOptions(0.2).weight_decay(0.1));
  expect_equal_bits<SGD>(SGDOptions(0.1).momentum(0.9), SGDOptions(0.2).momentum(0.5).nesterov(true));
  expect_equal_bits<SGD>(SGDOptions(0.1).momentum(0.9).dampening(0.1), SGDOptions(0.2).momentum(0.5));
  expect_equal_bits<Adam>(AdamOptions(0.1), AdamOptions(0.2).weight_decay(0.1).amsgrad(true));
  expect_equal_bits<AdamW>(AdamWOptions(0.1).betas({0.5, 0.7}), AdamWOptions(0.2).amsgrad(true).eps(1e-3));
  expect_equal_bits<RMSprop>(RMSpropOptions(0.1), RMSpropOptions(0.2).momentum(0.9).centered(true));
  expect_equal_bits<RMSprop>(RMSpropOptions(0.1).alpha(0.5), RMSpropOptions(0.2).weight_decay(0.1).eps(1e-2));
  expect_equal_bits<Adagrad>(AdagradOptions(0.1),
                             AdagradOptions(0.2).lr_decay(0.01).initial_accumulator_value(0.5).eps(1e-3));
}

// A state that is saved before the first step, and one of a parameter that no step reached.
TEST(TorchOptimizerState, AParameterWithoutStateHasNone) {
  using namespace torch::optim;  // NOLINT(google-build-using-namespace)
  expect_equal_bits<Adam>(AdamOptions(0.1), AdamOptions(0.2), 0);
  expect_equal_bits<Adam>(AdamOptions(0.1), AdamOptions(0.2), 2);
  expect_equal_bits<SGD>(SGDOptions(0.1).momentum(0.9), SGDOptions(0.2), 1);
  expect_equal_bits<Adagrad>(AdagradOptions(0.1), AdagradOptions(0.2), 0);
}

TEST(TorchOptimizerState, CountsStepsBeyondFloat32) {
  for (const std::int64_t steps : {std::int64_t{3}, (std::int64_t{1} << 24U) + 1}) {
    const auto all = parameters();
    torch::optim::Adam optimizer(all, torch::optim::AdamOptions(0.1));
    train(optimizer, all, 0, 1);
    const auto step_of = [&]() -> std::int64_t& {
      auto& state = *optimizer.state().at(all[0].unsafeGetTensorImpl());
      return static_cast<torch::optim::AdamParamState&>(state).step();
    };
    step_of() = steps;
    const NamedTensors state = state_dict(optimizer);
    step_of() = 0;
    load_state_dict(optimizer, state);
    EXPECT_EQ(step_of(), steps);
  }
}

TEST(TorchOptimizerState, OursHaveTheirOwn) {
  const auto all = parameters();
  optim::AdamW optimizer(NamedTensors{{"a", all[0]}, {"b", all[1]}}, optim::AdamWOptions(0.1));
  train(optimizer, {all[0], all[1]}, 0, 2);
  const NamedTensors state = state_dict(static_cast<torch::optim::Optimizer&>(optimizer));
  EXPECT_EQ(state.front().first, "state.a.step");
  optim::AdamW other(NamedTensors{{"a", all[0]}, {"b", all[1]}}, optim::AdamWOptions(0.2));
  load_state_dict(other, state);
  EXPECT_EQ(other.param_groups()[0].options().get_lr(), 0.1);
}

TEST(TorchOptimizerState, LbfgsIsRefusedByName) {
  torch::optim::LBFGS optimizer(parameters(), torch::optim::LBFGSOptions(1));
  try {
    state_dict(optimizer);
    ADD_FAILURE() << "was taken";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("torch::optim::LBFGS"), HasSubstr("RMSprop")));
  }
  EXPECT_THROW(load_state_dict(optimizer, {}), InvalidArgument);
}

// --------------------------------------------------------------------------------------- what does not fit

class UnfittingTorchState : public ::testing::Test {
 protected:
  UnfittingTorchState() { train(optimizer_, parameters_, 0, 3); }

  // Refused with all these texts, and the optimiser is as before.
  void expect_refused(const NamedTensors& tensors, const std::vector<std::string>& texts) {
    const auto copied = [&] {
      NamedTensors state = state_dict(optimizer_);
      for (auto& [name, tensor] : state) tensor = tensor.clone();
      return state;
    };
    const auto before = copied();
    try {
      load_state_dict(optimizer_, tensors);
      ADD_FAILURE() << "was taken: " << texts[0];
    } catch (const InvalidArgument& error) {
      for (const std::string& text : texts) EXPECT_THAT(error.what(), HasSubstr(text));
    }
    const auto after = copied();
    ASSERT_EQ(before.size(), after.size());
    for (std::size_t i = 0; i < before.size(); ++i)
      EXPECT_TRUE(torch::equal(before[i].second, after[i].second)) << before[i].first;
  }

  // The state with one entry replaced, added or, undefined, left out.
  NamedTensors with(const std::string& name, const at::Tensor& value) const {
    NamedTensors tensors;
    for (const auto& entry : state_dict(optimizer_))
      if (entry.first != name) tensors.push_back(entry);
    if (value.defined()) tensors.emplace_back(name, value);
    return tensors;
  }

  std::vector<at::Tensor> parameters_ = parameters();
  torch::optim::Adam optimizer_{parameters_, torch::optim::AdamOptions(0.1)};
};

TEST_F(UnfittingTorchState, IsRefused) {
  expect_refused(with("weight", torch::ones({1})), {"\"weight\" is not an entry"});
  expect_refused(with("state.1.exp_avg", torch::ones({2, 2})), {"state.1.exp_avg has shape [2, 2]"});
  expect_refused(with("state.1.exp_avg", {}), {"state.1.exp_avg is missing"});
  expect_refused(with("state.1.step", torch::ones({2})), {"state.1.step has 2 values"});
  expect_refused(with("state.1.momentum_buffer", torch::ones({5})), {"momentum_buffer belongs to another"});
  expect_refused(with("state.7.exp_avg", torch::ones({5})), {"state of parameter 7"});
  expect_refused(with("param_groups.1.lr", torch::ones({1})), {"2 parameter groups and the optimiser 1"});
  expect_refused(with("param_groups.0.nesterov", torch::ones({1})), {"nesterov is not an option"});
  expect_refused(with("param_groups.0.lr", torch::ones({2})), {"lr has 2 values"});
  expect_refused(with("param_groups.0.betas", torch::ones({1})), {"betas has 1 values"});
  expect_refused(with("param_groups.0.lr", -torch::ones({1})), {"param_groups.0: Invalid learning rate"});
  expect_refused(with("param_groups.0.maximize", torch::ones({})), {"maximize must be false"});
  expect_refused(with("param_groups.0.decoupled_weight_decay", torch::ones({})), {"must be false"});
  expect_refused(with("param_groups.0.amsgrad", torch::ones({})), {"state.0.max_exp_avg_sq is missing"});
  expect_refused(with("param_groups.0.params", torch::tensor({0, 1})), {"group 0 has 2 parameters"});
  expect_refused(with("param_groups.0.params", {}), {"by parameter name"});
  expect_refused({}, {"0 parameter groups"});
}

TEST_F(UnfittingTorchState, IsListed) {
  NamedTensors tensors = with("state.0.exp_avg", torch::ones({7}));
  tensors.emplace_back("state.9.exp_avg", torch::ones({7}));
  tensors.emplace_back("param_groups.0.centered", torch::ones({}));
  tensors.push_back(tensors[0]);
  expect_refused(tensors, {"this Adam", "state.0.exp_avg has shape [7]", "parameter 9",
                           "centered is not an option", tensors[0].first + " is there twice"});
}

TEST(UnfittingAdagradState, NeedsAStateForEveryParameter) {
  const auto all = parameters();
  torch::optim::Adagrad optimizer(all, torch::optim::AdagradOptions(0.1));
  NamedTensors some;
  for (const auto& entry : state_dict(optimizer))
    if (!entry.first.starts_with("state.1.")) some.push_back(entry);
  EXPECT_THROW(load_state_dict(optimizer, some), InvalidArgument);
}

}  // namespace
}  // namespace lockstep

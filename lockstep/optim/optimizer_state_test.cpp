#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>
#include <torch/types.h>

#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/tensor/state_dict.h"
#include "testing/temp_folder.h"
#include "testing/tensors.h"

namespace lockstep::optim {
namespace {

using ::testing::HasSubstr;
using testing::random_values;
using testing::TempFolder;

std::vector<at::Tensor> parameters() {
  return {random_values({3, 4}, 1), random_values({5}, 2), random_values({}, 3)};
}

// Some steps; the last parameter has no gradient, so no state.
void train(torch::optim::Optimizer& optimizer, const std::vector<at::Tensor>& parameters, int first,
           int last) {
  for (int s = first; s < last; ++s) {
    for (std::size_t i = 0; i < 2; ++i)
      parameters[i].mutable_grad() = random_values(parameters[i].sizes(), 10 * s + static_cast<int>(i));
    optimizer.step();
  }
}

void expect_close(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(torch::allclose(a[i], b[i], 1e-12, 1e-13)) << i;
}

// Trains by `From`, hands its archive to `To` with other options, and compares with training on without a
// break.
template <typename From, typename To, typename Options> void hand_over(const Options& options) {
  const auto through = parameters(), expected = parameters(), taken_over = parameters();
  From whole(expected, options);
  train(whole, expected, 0, 8);
  From before(through, options);
  train(before, through, 0, 4);
  std::stringstream file;
  torch::save(before, file);
  for (std::size_t i = 0; i < through.size(); ++i) taken_over[i].copy_(through[i]);
  To after(taken_over, Options(123));
  torch::load(after, file);
  EXPECT_EQ(after.param_groups()[0].options().get_lr(), options.lr());
  train(after, taken_over, 4, 8);
  expect_close(taken_over, expected);
}

TEST(OptimizerState, ArchivesAreInterchangeableWithLibtorchs) {
  const auto sgd = torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.1);
  hand_over<SGD, SGD>(sgd);
  hand_over<SGD, torch::optim::SGD>(sgd);
  hand_over<torch::optim::SGD, SGD>(sgd);
  const auto adam = torch::optim::AdamOptions(0.1).weight_decay(0.1).amsgrad(true);
  hand_over<Adam, Adam>(adam);
  hand_over<Adam, torch::optim::Adam>(adam);
  hand_over<torch::optim::Adam, Adam>(adam);
  const auto adamw = torch::optim::AdamWOptions(0.1).betas({0.5, 0.7});
  hand_over<AdamW, AdamW>(adamw);
  hand_over<AdamW, torch::optim::AdamW>(adamw);
  hand_over<torch::optim::AdamW, AdamW>(adamw);
}

TEST(OptimizerState, ContinuesFromASafetensorsFile) {
  const TempFolder folder;
  const auto all = parameters(), expected = parameters(), taken_over = parameters();
  const auto options = AdamWOptions(0.1).amsgrad(true).maximize(true);
  AdamW whole(expected, options);
  train(whole, expected, 0, 8);
  AdamW before(all, options);
  train(before, all, 0, 4);
  save_state_dict(before.state_dict(), folder / "optimizer.safetensors");
  for (std::size_t i = 0; i < all.size(); ++i) taken_over[i].copy_(all[i]);
  AdamW after(taken_over, AdamWOptions(7));
  after.load_state_dict(load_tensors(folder / "optimizer.safetensors"));
  EXPECT_EQ(after.state().size(), 2U);
  train(after, taken_over, 4, 8);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(torch::equal(taken_over[i], expected[i]));
}

TEST(OptimizerState, HasPythonsNames) {
  const auto all = parameters();
  Adam optimizer(std::vector<ParamGroup>{ParamGroup({all[1]}), ParamGroup({all[2], all[0]})},
                 AdamOptions(0.5));
  train(optimizer, all, 0, 2);
  std::map<std::string, at::Tensor> state;
  for (const auto& [name, value] : optimizer.state_dict()) state[name] = value;
  EXPECT_EQ(state.size(), 6U + 2 * 7U);
  EXPECT_EQ(state.at("state.0.step").item<float>(), 2);
  EXPECT_EQ(state.at("state.2.exp_avg").sizes(), all[0].sizes());
  EXPECT_FALSE(state.contains("state.1.exp_avg"));
  EXPECT_EQ(state.at("param_groups.1.lr").item<double>(), 0.5);
  EXPECT_TRUE(torch::equal(state.at("param_groups.1.params"), torch::tensor({1, 2}, at::kLong)));
}

NamedTensors named(const std::vector<at::Tensor>& tensors) {
  return {{"fc.0.weight", tensors[0]}, {"fc.0.bias", tensors[1]}, {"scale", tensors[2]}};
}

TEST(OptimizerState, IsByNameWhereParametersHaveNames) {
  const auto all = parameters();
  Adam optimizer(named(all), AdamOptions(0.5));
  train(optimizer, all, 0, 2);
  std::map<std::string, at::Tensor> state;
  for (const auto& [name, value] : optimizer.state_dict()) state[name] = value;
  EXPECT_EQ(state.size(), 6U + 3 * 6U);
  EXPECT_EQ(state.at("state.fc.0.weight.step").item<float>(), 2);
  EXPECT_EQ(state.at("state.fc.0.bias.exp_avg").sizes(), all[1].sizes());
  EXPECT_FALSE(state.contains("state.scale.exp_avg"));
  EXPECT_EQ(state.at("param_groups.scale.lr").item<double>(), 0.5);
}

// Into groups in another order, where numbers would mean other parameters.
TEST(OptimizerState, ByNameContinuesInOtherGroups) {
  const TempFolder folder;
  const auto all = parameters(), expected = parameters(), taken_over = parameters();
  const auto options = AdamWOptions(0.1).amsgrad(true);
  AdamW whole(expected, options);
  train(whole, expected, 0, 8);
  AdamW before(named(all), options);
  train(before, all, 0, 4);
  save_state_dict(before.state_dict(), folder / "optimizer.safetensors");
  for (std::size_t i = 0; i < all.size(); ++i) taken_over[i].copy_(all[i]);
  const NamedTensors names = named(taken_over);
  AdamW after(std::vector<ParamGroup>(), AdamWOptions(7));
  after.add_param_group(NamedTensors{names[2], names[1]});
  after.add_param_group(NamedTensors{names[0]});
  after.load_state_dict(load_tensors(folder / "optimizer.safetensors"));
  EXPECT_EQ(after.param_groups()[1].options().get_lr(), 0.1);
  train(after, taken_over, 4, 8);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(torch::equal(taken_over[i], expected[i]));
}

TEST(OptimizerState, ByNumberGoesIntoAnOptimiserWithNames) {
  const auto all = parameters(), taken_over = parameters(), expected = parameters();
  AdamW whole(expected, AdamWOptions(0.1));
  train(whole, expected, 0, 4);
  AdamW before(all, AdamWOptions(0.1));
  train(before, all, 0, 2);
  for (std::size_t i = 0; i < all.size(); ++i) taken_over[i].copy_(all[i]);
  AdamW after(named(taken_over), AdamWOptions(0.1));
  after.load_state_dict(before.state_dict());
  train(after, taken_over, 2, 4);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(torch::equal(taken_over[i], expected[i]));
}

TEST(OptimizerState, ByNameThatDoesNotFitIsRefused) {
  const auto all = parameters();
  SGD optimizer(named(all), SGDOptions(0.1).momentum(0.9));
  train(optimizer, all, 0, 2);
  const auto expect_refused = [&](const std::string& name, const at::Tensor& value, const std::string& text) {
    NamedTensors tensors;
    for (const auto& entry : optimizer.state_dict())
      if (entry.first != name) tensors.push_back(entry);
    tensors.emplace_back(name, value);
    try {
      optimizer.load_state_dict(tensors);
      ADD_FAILURE() << "was taken: " << text;
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr(text));
    }
  };
  expect_refused("weight", torch::ones({1}), "\"weight\" is not an entry");
  expect_refused("state.fc.1.bias.momentum_buffer", torch::ones({5}), "parameter \"fc.1.bias\"");
  expect_refused("state.fc.0.bias.momentum_buffer", torch::ones({2, 2}), "has shape [2, 2]");
  expect_refused("state.fc.0.bias.exp_avg", torch::ones({5}), "another optimiser");
  expect_refused("param_groups.scale.lr", torch::ones({1}), "have different options");
  expect_refused("param_groups.fc.0.weight.betas", torch::ones({2}), "not an option");
}

class Unfitting : public ::testing::Test {
 protected:
  Unfitting() { train(optimizer_, parameters_, 0, 2); }

  // Refused with this text, and the optimiser is as before.
  void expect_refused(const NamedTensors& tensors, const std::string& text) {
    const auto before = optimizer_.state_dict();
    try {
      optimizer_.load_state_dict(tensors);
      ADD_FAILURE() << "was taken: " << text;
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr(text));
    }
    const auto after = optimizer_.state_dict();
    ASSERT_EQ(before.size(), after.size());
    for (std::size_t i = 0; i < before.size(); ++i)
      EXPECT_TRUE(torch::equal(before[i].second, after[i].second));
  }

  // The state with one entry replaced, added or, undefined, left out.
  NamedTensors with(const std::string& name, const at::Tensor& value) const {
    NamedTensors tensors;
    for (const auto& entry : optimizer_.state_dict())
      if (entry.first != name) tensors.push_back(entry);
    if (value.defined()) tensors.emplace_back(name, value);
    return tensors;
  }

  std::vector<at::Tensor> parameters_ = parameters();
  SGD optimizer_{parameters_, SGDOptions(0.1).momentum(0.9)};
};

TEST_F(Unfitting, StateDictsAreRefused) {
  expect_refused(with("weight", torch::ones({1})), "\"weight\" is not an entry");
  expect_refused(with("state.x.momentum_buffer", torch::ones({1})), "not an entry");
  expect_refused(with("state.1.momentum_buffer", torch::ones({2, 2})), "has shape [2, 2]");
  expect_refused(with("state.1.exp_avg", torch::ones({5})), "another optimiser");
  expect_refused(with("state.7.momentum_buffer", torch::ones({5})), "parameter 7");
  expect_refused(with("param_groups.1.lr", torch::ones({1})), "2 parameter groups");
  expect_refused(with("param_groups.0.betas", torch::ones({2})), "not an option");
  expect_refused(with("param_groups.0.lr", torch::ones({2})), "has 2 values");
  expect_refused(with("param_groups.0.lr", -torch::ones({1})), "lr is -1");
  expect_refused(with("param_groups.0.params", torch::tensor({0, 1})),
                 "2 parameters in the state and 3 here");
  expect_refused(with("param_groups.0.params", {}), "0 parameters in the state");
}

TEST_F(Unfitting, ArchivesAreRefused) {
  const auto saved = [](SGD&& other) {
    std::stringstream file;
    torch::save(other, file);
    return file;
  };
  const auto expect_refused_archive = [&](std::stringstream file, const std::string& text) {
    const auto before = optimizer_.state_dict();
    try {
      torch::load(optimizer_, file);
      ADD_FAILURE() << "was taken: " << text;
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr(text));
    }
    EXPECT_EQ(optimizer_.state_dict().size(), before.size());
  };
  expect_refused_archive(saved(SGD(std::vector<at::Tensor>{parameters_[0]}, SGDOptions(1))),
                         "has 1 parameters");
  expect_refused_archive(
      saved(SGD(std::vector<ParamGroup>{ParamGroup({parameters_[0]}), ParamGroup({parameters_[1]})},
                SGDOptions(1))),
      "2 parameter groups");
  const std::vector<at::Tensor> others = {random_values({7}, 1), random_values({5}, 1), random_values({}, 1)};
  SGD other(others, SGDOptions(1).momentum(0.5));
  train(other, others, 0, 1);
  std::stringstream file;
  torch::save(other, file);
  expect_refused_archive(std::move(file), "momentum_buffer has shape [7]");
}

}  // namespace
}  // namespace lockstep::optim

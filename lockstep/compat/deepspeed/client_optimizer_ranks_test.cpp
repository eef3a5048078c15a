// What a program gives to DeepSpeed's engine beside the configuration, against libtorch in one process.
#include <gmock/gmock.h>
#include <torch/nn.h>
#include <torch/optim.h>

#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/compat/deepspeed/engine.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/sgd.h"
#include "testing/ranks.h"
#include "testing/shared_folder.h"

namespace lockstep::compat::deepspeed {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using Json = nlohmann::json;

struct NormedImpl : torch::nn::Module {
  NormedImpl() {
    torch::manual_seed(11);
    fc = register_module("fc", torch::nn::Linear(5, 6));
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({6})));
    out = register_module("out", torch::nn::Linear(6, 3));
    to(torch::kDouble);
  }
  at::Tensor forward(const at::Tensor& x) { return out(torch::tanh(norm(fc(x)))); }
  std::vector<at::Tensor> without_decay() const { return {fc->bias, norm->weight, norm->bias, out->bias}; }
  std::vector<at::Tensor> with_decay() const { return {fc->weight, out->weight}; }

  torch::nn::Linear fc{nullptr}, out{nullptr};
  torch::nn::LayerNorm norm{nullptr};
};
TORCH_MODULE(Normed);

at::Tensor normed_loss(const at::Tensor& output) { return output.pow(2).mean() - output.sum() * 0.1; }
at::Tensor normed_input(int rank, int step) {
  return (torch::arange(20, torch::kDouble).view({4, 5}) * 0.37 + rank * 1.3 + step * 0.71).sin();
}

Json normed_config(int stage) {
  return {{"train_micro_batch_size_per_gpu", 4},
          {"gradient_clipping", 0},
          {"zero_optimization", {{"stage", stage}, {"stage3_param_persistence_threshold", 0}}}};
}
Json adamw_config(int stage) {
  Json config = normed_config(stage);
  config["optimizer"] = {{"type", "AdamW"}, {"params", {{"lr", 0.02}, {"weight_decay", 0.1}}}};
  return config;
}

template <typename Engine> void engine_steps(Engine& engine, int rank, int from, int to) {
  for (int step = from; step < to; ++step) {
    engine.backward(normed_loss(engine(normed_input(rank, step))));
    engine.step();
  }
}

void steps_alone(Normed& net, torch::optim::Optimizer& optimizer, int ranks, int steps) {
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    for (int rank = 0; rank < ranks; ++rank) (normed_loss(net(normed_input(rank, step))) / ranks).backward();
    optimizer.step();
  }
}

void expect_equal(Normed& net, Normed& alone, int stage) {
  for (std::size_t i = 0; i < alone->parameters().size(); ++i)
    EXPECT_TRUE(net->parameters()[i].allclose(alone->parameters()[i], 1e-10, 1e-12))
        << "stage " << stage << ", parameter " << i;
}

torch::optim::AdamW adamw_alone(Normed& net) {
  const auto options = torch::optim::AdamWOptions(0.02).weight_decay(0.1);
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(net->without_decay(), std::make_unique<torch::optim::AdamWOptions>(
                                                torch::optim::AdamWOptions(0.05).weight_decay(0)));
  groups.emplace_back(net->with_decay(), std::make_unique<torch::optim::AdamWOptions>(options));
  return torch::optim::AdamW(groups, options);
}

RANKS_TEST(DeepSpeedGroups, HaveOptionsOfTheirOwnAtEveryStage, Ranks(1, 2, 3, 4), Backends("shm", "tcp")) {
  for (const int stage : {0, 1, 2, 3}) {
    Normed net, alone;
    auto [engine, optimizer, scheduler] =
        initialize(net, parse_config(adamw_config(stage)),
                   {.process_group = world(),
                    .model_parameters = {
                        {.params = net->without_decay(), .options = {{"weight_decay", 0}, {"lr", 0.05}}}}});
    EXPECT_THAT(engine.get_lr(), ElementsAre(0.05, 0.02));
    engine_steps(engine, rank(), 0, 5);
    torch::optim::AdamW reference = adamw_alone(alone);
    steps_alone(alone, reference, size(), 5);
    expect_equal(net, alone, stage);
  }
}

RANKS_TEST(DeepSpeedGroups, ThatNameAllParametersLeaveNoOther, Ranks(1, 2)) {
  for (const int stage : {0, 1}) {
    Normed net, alone;
    net->norm->bias.requires_grad_(false);
    alone->norm->bias.requires_grad_(false);
    auto [engine, optimizer, scheduler] =
        initialize(net, parse_config(adamw_config(stage)),
                   {.process_group = world(),
                    .model_parameters = {
                        {.params = net->with_decay()},
                        {.params = net->without_decay(), .options = {{"weight_decay", 0}, {"lr", 0.05}}}}});
    EXPECT_THAT(engine.get_lr(), ElementsAre(0.02, 0.05));
    engine_steps(engine, rank(), 0, 3);
    torch::optim::AdamW reference = adamw_alone(alone);
    steps_alone(alone, reference, size(), 3);
    expect_equal(net, alone, stage);
  }
}

// Of 16 bits: each master takes the steps of its parameter's group.
struct TwoWeightsImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& factor) { return ((first + second) * factor).sum(); }
  at::Tensor first = register_parameter("first", torch::full({64}, 1.0F));
  at::Tensor second = register_parameter("second", torch::full({64}, 1.0F));
};
TORCH_MODULE(TwoWeights);

RANKS_TEST(DeepSpeedGroups, AreThoseOfTheMasters, Ranks(1, 2)) {
  for (const int stage : {0, 1}) {
    TwoWeights net;
    Json config = normed_config(stage);
    config["optimizer"] = {{"type", "SGD"}, {"params", {{"lr", 0.25}}}};
    config["bf16"] = {{"enabled", true}};
    auto [engine, optimizer, scheduler] =
        initialize(net, parse_config(config),
                   {.process_group = world(),
                    .model_parameters = {{.params = {net->second}, .options = {{"lr", 0.5}}}}});
    engine.backward(engine(torch::full({}, 0.25F, torch::kBFloat16)));
    engine.step();
    EXPECT_EQ(net->first.scalar_type(), torch::kBFloat16);
    EXPECT_EQ(net->first[63].item<double>(), 1 - 0.0625) << "stage " << stage;
    EXPECT_EQ(net->second[63].item<double>(), 1 - 0.125) << "stage " << stage;
  }
}

// Saved at one stage, loaded at another: the bits of the run that was not interrupted.
RANKS_TEST(DeepSpeedGroups, GoOnFromACheckpointOfAnyStage, Ranks(1, 2, 3)) {
  const testing::SharedFolder folder(world());
  const auto start = [&](Normed& net, int stage) {
    return initialize(
        net, parse_config(adamw_config(stage)),
        {.process_group = world(),
         .model_parameters = {{.params = net->without_decay(), .options = {{"weight_decay", 0}}}}});
  };
  for (const int stage : {0, 3}) {
    const std::string place = folder / std::to_string(stage);
    if (rank() == 0) std::filesystem::create_directory(place);
    Normed whole;
    auto [engine, optimizer, scheduler] = start(whole, stage);
    engine_steps(engine, rank(), 0, 2);
    engine.save_checkpoint(place);
    engine_steps(engine, rank(), 2, 4);
    for (const int other : {0, 3}) {
      Normed resumed;
      auto again = start(resumed, other);
      ASSERT_TRUE(again.engine.load_checkpoint(place));
      engine_steps(again.engine, rank(), 2, 4);
      for (std::size_t i = 0; i < whole->parameters().size(); ++i)
        EXPECT_TRUE(resumed->parameters()[i].equal(whole->parameters()[i])) << stage << " to " << other;
    }
  }
}

RANKS_TEST(DeepSpeedClientOptimizer, OfLibtorchStepsAtEveryStage, Ranks(1, 2, 3, 4), Backends("shm", "tcp")) {
  for (const int stage : {0, 1, 2, 3}) {
    Normed net, alone;
    const auto slow = torch::optim::RMSpropOptions(0.003), fast = torch::optim::RMSpropOptions(0.01);
    auto [engine, optimizer, scheduler] =
        initialize(net, parse_config(normed_config(stage)),
                   {.process_group = world(),
                    .optimizer = client_optimizer<torch::optim::RMSprop>(
                        {{net->without_decay(), torch::optim::RMSpropOptions(0.003)}}, fast)});
    engine_steps(engine, rank(), 0, 4);
    std::vector<torch::optim::OptimizerParamGroup> groups;
    groups.emplace_back(alone->without_decay(), std::make_unique<torch::optim::RMSpropOptions>(slow));
    groups.emplace_back(alone->with_decay(), std::make_unique<torch::optim::RMSpropOptions>(fast));
    torch::optim::RMSprop reference(groups, fast);
    steps_alone(alone, reference, size(), 4);
    expect_equal(net, alone, stage);
  }
}

RANKS_TEST(DeepSpeedClientOptimizer, ComesBeforeTheConfigurations, Ranks(1, 2, 3)) {
  for (const int stage : {0, 1, 3}) {
    Normed net, alone;
    const auto halves = [](torch::optim::Optimizer& of) {
      return std::make_unique<optim::StepLR>(of, 2, 0.5);
    };
    auto [engine, optimizer, scheduler] =
        initialize(net, parse_config(adamw_config(stage)),
                   {.process_group = world(),
                    .optimizer = client_optimizer<optim::SGD>(optim::SGDOptions(0.04).momentum(0.9)),
                    .lr_scheduler = halves});
    ASSERT_NE(scheduler, nullptr);
    torch::optim::SGD reference(alone->parameters(), torch::optim::SGDOptions(0.04).momentum(0.9));
    for (int step = 0; step < 4; ++step) {
      EXPECT_THAT(engine.get_lr(), ElementsAre(step < 2 ? 0.04 : 0.02));
      engine_steps(engine, rank(), step, step + 1);
    }
    for (int step = 0; step < 4; ++step) {
      reference.param_groups()[0].options().set_lr(step < 2 ? 0.04 : 0.02);
      reference.zero_grad();
      for (int other = 0; other < size(); ++other)
        (normed_loss(alone(normed_input(other, step))) / size()).backward();
      reference.step();
    }
    expect_equal(net, alone, stage);
  }
}

RANKS_TEST(DeepSpeedClientOptimizer, WhatContradictsIsRefused, Ranks(1, 2)) {
  for (const int stage : {0, 1}) {
    Normed net;
    const auto start = [&](const Json& config, InitializeOptions options) {
      options.process_group = world();
      return [&net, config, options] { return initialize(net, parse_config(config), options); };
    };
    const auto refused = [](const char* what) { return ThrowsMessage<InvalidArgument>(HasSubstr(what)); };
    const ClientOptimizer sgd = client_optimizer<optim::SGD>(optim::SGDOptions(0.1));
    const at::Tensor other = torch::ones({3}).requires_grad_(true);
    EXPECT_THAT(
        start(adamw_config(stage), {.model_parameters = {{.params = {net->fc->bias}}}, .optimizer = sgd}),
        refused("model_parameters are groups of the configuration's optimizer"));
    EXPECT_THAT(start(adamw_config(stage), {.model_parameters = {{.params = {other}}}}),
                refused("have 1 tensors that are not trained parameters of this model"));
    EXPECT_THAT(start(adamw_config(stage),
                      {.model_parameters = {{.params = {net->fc->bias}}, {.params = {net->fc->bias}}}}),
                refused("or are there twice"));
    EXPECT_THAT(start(adamw_config(stage), {.model_parameters = {{.options = {{"weight_decya", 0}}}}}),
                refused("model_parameters[0].weight_decya is not a key of DeepSpeed; did you mean "
                        "model_parameters[0].weight_decay?"));
    EXPECT_THAT(start(adamw_config(stage), {.model_parameters = {{}, {.options = {{"torch_adam", true}}}}}),
                refused("model_parameters[1].torch_adam cannot differ from group to group"));
    EXPECT_THAT(start(normed_config(stage), {}), refused("needs an \"optimizer\", or the program gives"));
    Json scheduled = adamw_config(stage);
    scheduled["scheduler"] = {{"type", "WarmupLR"}};
    const auto constant = [](torch::optim::Optimizer& of) {
      return std::make_unique<optim::StepLR>(of, 1, 1.0);
    };
    EXPECT_THAT(start(scheduled, {.lr_scheduler = constant}), refused("and the program has one; give one"));
  }
}

}  // namespace
}  // namespace lockstep::compat::deepspeed

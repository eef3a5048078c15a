// DeepSpeed's engine on several ranks, against libtorch in one process, formulas, and itself uninterrupted.
#include "lockstep/compat/deepspeed/engine.h"

#include <gmock/gmock.h>
#include <torch/nn.h>
#include <torch/optim.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/tensor/copy_state_dict.h"
#include "testing/ranks.h"
#include "testing/shared_folder.h"

namespace lockstep::compat::deepspeed {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Optional;
using ::testing::ThrowsMessage;
using Json = nlohmann::json;

constexpr std::array STAGES = {0, 1, 3};

struct TwoLayersImpl : torch::nn::Module {
  TwoLayersImpl() {
    torch::manual_seed(7);
    first = register_module("first", torch::nn::Linear(5, 6));
    second = register_module("second", torch::nn::Linear(6, 3));
  }
  at::Tensor forward(const at::Tensor& x) { return second(torch::tanh(first(x))); }

  torch::nn::Linear first{nullptr}, second{nullptr};
};
TORCH_MODULE(TwoLayers);

// What a rank computes in a micro step.
at::Tensor loss_of(const at::Tensor& output) { return output.pow(2).mean() - output.sum() * 0.1; }
at::Tensor input_of(int rank, int micro_step) {
  const at::Tensor counted = torch::arange(20, torch::kDouble).view({4, 5});
  return (counted * 0.37 + rank * 1.3 + micro_step * 0.71).sin();
}

Json config_of(int stage) {
  return {{"train_micro_batch_size_per_gpu", 4},
          {"gradient_accumulation_steps", 2},
          {"gradient_clipping", 0.05},
          {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 0.02}, {"weight_decay", 0.1}}}}},
          {"scheduler",
           {{"type", "WarmupLR"},
            {"params", {{"warmup_max_lr", 0.02}, {"warmup_num_steps", 3}, {"warmup_type", "linear"}}}}},
          {"zero_optimization", {{"stage", stage}, {"stage3_param_persistence_threshold", 0}}}};
}

template <typename Engine> void run_steps(Engine& engine, int rank, int from, int to) {
  for (int micro = 2 * from; micro < 2 * to; ++micro) {
    engine.backward(loss_of(engine(input_of(rank, micro))));
    engine.step();
  }
}

// One process with all ranks' inputs, and libtorch's optimiser and clipping. Also the last norm.
double train_alone(TwoLayers& net, int ranks, int steps) {
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(0.02).weight_decay(0.1));
  double norm = 0;
  for (int step = 0; step < steps; ++step) {
    optimizer.param_groups()[0].options().set_lr(0.02 * std::min(1.0, std::max(0, step - 1) / 3.0));
    optimizer.zero_grad();
    for (int part = 0; part < 2 * ranks; ++part)
      (loss_of(net(input_of(part / 2, 2 * step + part % 2))) / (2 * ranks)).backward();
    norm = torch::nn::utils::clip_grad_norm_(net->parameters(), 0.05);
    optimizer.step();
  }
  return norm;
}

RANKS_TEST(DeepSpeedEngine, TrainsAsOneProcessAtEveryStage, Ranks(1, 2, 3, 4)) {
  for (const int stage : STAGES) {
    TwoLayers net, alone;
    net->to(torch::kDouble);
    alone->to(torch::kDouble);
    auto [engine, optimizer, scheduler] =
        initialize(net, parse_config(config_of(stage)), {.process_group = world()});
    EXPECT_EQ(engine.train_batch_size(), 8 * size());
    EXPECT_FALSE(engine.is_gradient_accumulation_boundary());
    run_steps(engine, rank(), 0, 6);
    const double norm = train_alone(alone, size(), 6);
    for (std::size_t i = 0; i < alone->parameters().size(); ++i)
      EXPECT_TRUE(net->parameters()[i].allclose(alone->parameters()[i], 1e-10, 1e-12)) << "stage " << stage;
    EXPECT_THAT(engine.get_global_grad_norm(), Optional(DoubleNear(norm, 1e-9)));
    EXPECT_EQ(engine.global_steps(), 6);
    EXPECT_EQ(engine.micro_steps(), 12);
    EXPECT_EQ(engine.global_samples(), 6 * 8 * size());
    EXPECT_EQ(engine.skipped_steps(), 0);
    EXPECT_TRUE(engine.was_step_applied());
    EXPECT_EQ(scheduler->last_epoch(), 6);
    EXPECT_THAT(engine.get_lr(), ElementsAre(0.02));
    EXPECT_EQ(optimizer.param_groups()[0].options().get_lr(), 0.02);
  }
}

// A weight whose gradient is `factor`, and a step of SGD.
struct WeightImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& factor) { return (weight * factor).sum(); }
  at::Tensor weight = register_parameter("weight", torch::full({64}, 1.0F));
};
TORCH_MODULE(Weight);

Json half_config(int stage, Json precision, const char* type = "fp16") {
  precision["enabled"] = true;
  return {
      {"train_micro_batch_size_per_gpu", 1},
      {"gradient_clipping", 0},
      {"optimizer", {{"type", "SGD"}, {"params", {{"lr", 0.25}}}}},
      {"scheduler", {{"type", "WarmupLR"}, {"params", {{"warmup_min_lr", 0.25}, {"warmup_max_lr", 0.25}}}}},
      {"zero_optimization", {{"stage", stage}, {"stage3_param_persistence_threshold", 0}}},
      {type, std::move(precision)}};
}

// C: clean, O: an overflow on the last rank alone. All ranks skip the step, the scheduler waits, and the
// scale is that of DeepSpeed's rules: amp/loss_scale.h has the traces.
RANKS_TEST(DeepSpeedEngine, AllRanksSkipAfterAnOverflowOnOne, Ranks(1, 2, 3, 4)) {
  const std::string pattern = "CCCOOCO";
  const std::vector<double> scales = {16, 16, 32, 32, 16, 16, 8};
  for (const int stage : STAGES) {
    Weight net;
    auto [engine, optimizer, scheduler] = initialize(
        net, parse_config(half_config(stage, {{"initial_scale_power", 4}, {"loss_scale_window", 2}})),
        {.process_group = world()});
    ASSERT_EQ(net->weight.scalar_type(), torch::kHalf);
    EXPECT_EQ(engine.loss_scale(), 16);
    int clean = 0;
    for (std::size_t i = 0; i < pattern.size(); ++i) {
      const bool overflows = pattern[i] == 'O';
      clean += overflows ? 0 : 1;
      const bool is_cause = overflows && rank() == size() - 1;
      const at::Tensor factor = torch::full({}, is_cause ? INFINITY : 0.25F, torch::kHalf);
      engine.backward(engine->forward(factor));
      engine.step();
      EXPECT_EQ(engine.was_step_applied(), !overflows);
      EXPECT_EQ(engine.loss_scale(), scales[i]) << "stage " << stage << ", step " << i;
      EXPECT_EQ(net->weight[63].item<double>(), 1 - clean * 0.0625) << "stage " << stage << ", step " << i;
      EXPECT_EQ(scheduler->last_epoch(), clean);
    }
    EXPECT_EQ(engine.global_steps(), 7);
    EXPECT_EQ(engine.skipped_steps(), 3);
  }
}

RANKS_TEST(DeepSpeedEngine, AnOverflowAtTheLowestScaleEndsTheRun, Ranks(2)) {
  Weight net;
  const Json scale = {{"initial_scale_power", 1}, {"hysteresis", 1}, {"min_loss_scale", 1}};
  auto [engine, optimizer, scheduler] =
      initialize(net, parse_config(half_config(1, scale)), {.process_group = world()});
  const auto overflow = [&engine = engine, this] {
    engine.backward(engine(torch::full({}, rank() == 0 ? NAN : 1.0F, torch::kHalf)));
    engine.step();
  };
  overflow();
  EXPECT_EQ(engine.loss_scale(), 1);
  EXPECT_THAT(overflow, ThrowsMessage<InvalidArgument>(HasSubstr("overflow at the lowest scale, 1")));
}

RANKS_TEST(DeepSpeedEngine, BrainFloatsHaveNoScaleAndSkipUnlessToldNotTo, Ranks(1, 2)) {
  for (const int stage : STAGES) {
    for (const bool checks : {true, false}) {
      Weight net;
      auto [engine, optimizer, scheduler] =
          initialize(net, parse_config(half_config(stage, {{"check_grad_overflow", checks}}, "bf16")),
                     {.process_group = world()});
      EXPECT_EQ(net->weight.scalar_type(), torch::kBFloat16);
      EXPECT_EQ(engine.loss_scale(), 1);
      engine.backward(engine(torch::full({}, rank() == 0 ? INFINITY : 1.0F, torch::kBFloat16)));
      engine.step();
      EXPECT_EQ(engine.was_step_applied(), !checks);
      EXPECT_EQ(net->weight.isfinite().all().item<bool>(), checks);
    }
  }
}

// The spacing of float16 below 1 is 2^-11: a step of 2^-13 alone is rounded away, four of them are not.
void expect_masters_add_up(const ProcessGroup& group, int stage) {
  Weight net;
  Json config = half_config(stage, {{"loss_scale", 128.0}, {"auto_cast", true}});
  config["optimizer"]["params"]["lr"] = 1.0;
  config.erase("scheduler");
  auto [engine, optimizer, scheduler] = initialize(net, parse_config(config), {.process_group = group});
  EXPECT_EQ(scheduler, nullptr);
  const auto step = [&engine = engine] {
    engine.backward(engine(torch::full({}, std::ldexp(1.0, -13))));  // a float32 input: auto_cast
    engine.step();
  };
  step();
  EXPECT_EQ(net->weight[0].item<double>(), 1);
  for (int i = 1; i < 8; ++i) step();
  EXPECT_EQ(net->weight[0].item<double>(), 1 - std::ldexp(1.0, -10));
  EXPECT_EQ(engine.loss_scale(), 128);
}
RANKS_TEST(DeepSpeedEngine, MastersAddUpWhatHalvesRoundAway, Ranks(1, 2, 3), Backends("shm", "tcp")) {
  for (const int stage : {0, 1, 2, 3}) expect_masters_add_up(world(), stage);
}

RANKS_TEST(DeepSpeedEngine, NoSyncLeavesGradientsToTheNextBackward, Ranks(1, 2, 3)) {
  for (const int stage : {0, 1}) {
    Weight net;
    const Json config = {{"train_micro_batch_size_per_gpu", 1},
                         {"gradient_clipping", 0},
                         {"optimizer", {{"type", "SGD"}, {"params", {{"lr", 0.5}}}}},
                         {"zero_optimization", {{"stage", stage}}}};
    auto [engine, optimizer, scheduler] = initialize(net, parse_config(config), {.process_group = world()});
    {
      const auto alone = engine.no_sync();
      engine.backward(engine(torch::full({}, rank() + 1.0F)));
      EXPECT_THAT([&engine = engine] { engine.step(); },
                  ThrowsMessage<InvalidArgument>(HasSubstr("step() inside of no_sync()")));
      EXPECT_THAT([&engine = engine] { return engine.no_sync(); },
                  ThrowsMessage<InvalidArgument>(HasSubstr("no_sync() inside of no_sync()")));
    }
    engine.backward(engine(torch::full({}, 2.0F)));
    engine.step();
    // the mean of rank + 1 over the ranks, and 2
    EXPECT_EQ(net->weight[0].item<double>(), 1 - 0.5 * ((size() + 1) / 2.0 + 2)) << "stage " << stage;
  }
  Weight net;
  auto [engine, optimizer, scheduler] =
      initialize(net, parse_config(half_config(2, {})), {.process_group = world()});
  EXPECT_THAT([&engine = engine] { return engine.no_sync(); },
              ThrowsMessage<InvalidArgument>(HasSubstr("not possible at ZeRO stage 2")));
}

RANKS_TEST(DeepSpeedEngine, RefusesWhatItCannotTrain, Ranks(1, 2)) {
  Weight net;
  const auto start = [&](const Json& config) {
    return [&net, config, this] { return initialize(net, parse_config(config), {.process_group = world()}); };
  };
  EXPECT_THAT(start({{"train_batch_size", 4 * size() + 1},
                     {"train_micro_batch_size_per_gpu", 2},
                     {"gradient_accumulation_steps", 2}}),
              ThrowsMessage<InvalidArgument>(
                  HasSubstr(size() == 1 ? "train_batch_size is 5, train_micro_batch_size_per_gpu 2, "
                                          "gradient_accumulation_steps 2, with 1 rank"
                                        : "train_batch_size is 9, train_micro_batch_size_per_gpu 2, "
                                          "gradient_accumulation_steps 2, with 2 ranks")));
  EXPECT_THAT(start({{"train_batch_size", 4}}),
              ThrowsMessage<InvalidArgument>(HasSubstr("the configuration needs an \"optimizer\"")));
}

// Saved at one stage, loaded at another: the bits of the run that was not interrupted.
RANKS_TEST(DeepSpeedEngine, GoesOnFromItsCheckpointsAtAnyStage, Ranks(1, 2, 3)) {
  const testing::SharedFolder folder(world());
  const auto train = [&](TwoLayers& net, int stage) {
    net->to(torch::kDouble);
    return initialize(net, parse_config(config_of(stage)), {.process_group = world()});
  };
  for (const int stage : {0, 3}) {
    const std::string place = folder / std::to_string(stage);
    if (rank() == 0) std::filesystem::create_directory(place);
    TwoLayers whole;
    auto [engine, optimizer, scheduler] = train(whole, stage);
    EXPECT_FALSE(engine.load_checkpoint(place));  // there is none
    run_steps(engine, rank(), 0, 2);
    const std::string path = engine.save_checkpoint(place, {.client_state = {{"epoch", 3}}});
    EXPECT_TRUE(path.starts_with(place + "/global_step2/"));
    run_steps(engine, rank(), 2, 4);
    for (const int other : {0, 3}) {
      TwoLayers resumed;
      {
        const at::NoGradGuard no_grad;
        for (auto& p : resumed->parameters()) p.zero_();
      }
      auto again = train(resumed, other);
      const auto loaded = again.engine.load_checkpoint(place);
      ASSERT_TRUE(loaded);
      EXPECT_EQ(loaded->client_state, (Json{{"epoch", 3}}));
      EXPECT_EQ(loaded->path, path);
      EXPECT_EQ(again.engine.global_steps(), 2);
      run_steps(again.engine, rank(), 2, 4);
      // Stage 3 adds the averages of the micro-batches of a step; stage 0 averages their sum.
      const double most = other == stage ? 0 : 1e-14;
      for (std::size_t i = 0; i < whole->parameters().size(); ++i)
        EXPECT_TRUE(at::allclose(resumed->parameters()[i], whole->parameters()[i], /*rtol=*/0, most))
            << stage << " to " << other;
    }
  }
}

RANKS_TEST(DeepSpeedEngine, ACheckpointHasOneTagAndCanGiveTheModelAlone, Ranks(2)) {
  const testing::SharedFolder folder(world());
  Weight net;
  Json config = half_config(0, {{"loss_scale", 128.0}});
  auto [engine, optimizer, scheduler] = initialize(net, parse_config(config), {.process_group = world()});
  engine.backward(engine(torch::full({}, 0.25F, torch::kHalf)));
  engine.step();
  const auto save_as = [&engine = engine, &folder](const std::string& tag) {
    return [&engine, &folder, tag] { return engine.save_checkpoint(folder.path(), {.tag = tag}); };
  };
  EXPECT_THAT(save_as("of" + std::to_string(rank())),
              ThrowsMessage<Mismatch>(HasSubstr("rank 0 gives \"of0\" and rank 1 \"of1\"")));
  EXPECT_THAT(save_as("a/b"), ThrowsMessage<InvalidArgument>(HasSubstr("not the name of a folder")));
  engine.save_checkpoint(folder.path(), {.tag = "best", .save_latest = false});
  EXPECT_FALSE(engine.load_checkpoint(folder.path()));
  engine.set_lr(0.5);
  engine.backward(engine(torch::full({}, 0.25F, torch::kHalf)));
  engine.step();
  EXPECT_EQ(net->weight[0].item<double>(), 1 - 0.0625 - 0.125);
  EXPECT_TRUE(engine.load_checkpoint(folder.path(), {.tag = "best", .load_module_only = true}));
  EXPECT_EQ(net->weight[0].item<double>(), 1 - 0.0625);
  EXPECT_EQ(engine.global_steps(), 2);
}

}  // namespace
}  // namespace lockstep::compat::deepspeed

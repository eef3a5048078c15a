#include "lockstep/compat/deepspeed/config.h"

#include <gmock/gmock.h>

#include <fstream>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/compat/deepspeed/config_keys.h"
#include "testing/paths.h"

namespace lockstep::compat::deepspeed {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;
using Json = nlohmann::json;

std::string complaint_about(const std::string& json) {
  try {
    parse_config_text(json);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// The article's, with Python's True as JSON has it.
TEST(DeepSpeedConfig, ReadsTheArticlesFile) {
  const Config config = read_config(testing::source_folder() + "/examples/ds_config.json");
  EXPECT_EQ(config.batch.train, 64);
  EXPECT_EQ(config.batch.micro, std::nullopt);
  EXPECT_EQ(config.batch.accumulation, 4);
  ASSERT_TRUE(config.optimizer);
  EXPECT_EQ(config.optimizer->type, OptimizerType::ADAMW);  // DeepSpeed's Adam decouples weight decay
  EXPECT_EQ(config.optimizer->lr, 1e-5);
  EXPECT_EQ(config.optimizer->betas, std::pair(0.9, 0.999));
  EXPECT_EQ(config.optimizer->weight_decay, 0.01);
  EXPECT_EQ(config.precision.type, Precision::FLOAT16);
  EXPECT_EQ(config.precision.loss_scale, 0);
  EXPECT_EQ(config.precision.initial_scale_power, 16);
  EXPECT_EQ(config.precision.hysteresis, 2);
  EXPECT_EQ(config.zero_stage, 3);
  EXPECT_EQ(config.gradient_clipping, 1);
  EXPECT_EQ(config.scheduler, std::nullopt);
  EXPECT_THAT(config.notes,
              AllOf(Contains(HasSubstr("zero_optimization.overlap_comm has no effect")),
                    Contains(HasSubstr("zero_optimization.offload_param.pin_memory has no effect")),
                    Contains(HasSubstr("stage3_gather_fp16_weights_on_model_save has no effect")),
                    Contains(HasSubstr("wall_clock_breakdown has no effect"))));
}

TEST(DeepSpeedConfig, TakesJsonOfTheProgram) {
  const Config config = parse_config({
      {"train_batch_size", 64},
      {"gradient_accumulation_steps", 4},
      {"optimizer", {{"type", "Adam"}, {"params", {{"lr", 1e-5}, {"betas", {0.8, 0.9}}}}}},
      {"zero_optimization", {{"stage", 3}}},
  });
  EXPECT_EQ(config.optimizer->betas, std::pair(0.8, 0.9));
  EXPECT_EQ(config.zero_stage, 3);
  EXPECT_THAT(config.notes, IsEmpty());
}

TEST(DeepSpeedConfig, Stage3sNumbersHaveTwoNamesAndDeepSpeedsDefaults) {
  const GatherConfig defaults = parse_config({{"zero_optimization", {{"stage", 3}}}}).gather;
  EXPECT_EQ(defaults.param_persistence_threshold, 100'000);
  EXPECT_EQ(defaults.model_persistence_threshold, std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(defaults.max_live_parameters, 1'000'000'000);
  EXPECT_EQ(defaults.prefetch_bucket_size, 50'000'000);
  const Config config = parse_config({{"zero_optimization",
                                       {{"stage", 3},
                                        {"stage3_param_persistence_threshold", 1e4},
                                        {"model_persistence_threshold", 70},
                                        {"stage3_max_live_parameters", 5000},
                                        {"prefetch_bucket_size", 0}}}});
  EXPECT_EQ(config.gather.param_persistence_threshold, 10'000);
  EXPECT_EQ(config.gather.model_persistence_threshold, 70);
  EXPECT_EQ(config.gather.max_live_parameters, 5000);
  EXPECT_EQ(config.gather.prefetch_bucket_size, 0);
  EXPECT_THAT(config.notes, IsEmpty());
  EXPECT_THAT(complaint_about(R"({"zero_optimization": {"stage3_max_live_parameters": -1}})"),
              HasSubstr("zero_optimization.stage3_max_live_parameters is -1 and must be 0 or more"));
}

// type and params, to what it comes to: type, lr, weight decay.
TEST(DeepSpeedConfig, OptimisersHaveDeepSpeedsDefaults) {
  const auto with = [](const char* type, const char* params) {
    return *parse_config({{"optimizer", {{"type", type}, {"params", Json::parse(params)}}}}).optimizer;
  };
  EXPECT_EQ(with("Adam", "{}").type, OptimizerType::ADAMW);
  EXPECT_EQ(with("adam", R"({"adam_w_mode": false})").type, OptimizerType::ADAM);
  EXPECT_EQ(with("AdamW", R"({"adam_w_mode": false})").type, OptimizerType::ADAMW);
  EXPECT_EQ(with("AdamW", "{}").weight_decay, 0);
  EXPECT_EQ(with("AdamW", R"({"torch_adam": true})").weight_decay, 0.01);
  EXPECT_EQ(with("Adam", R"({"torch_adam": true, "adam_w_mode": false})").weight_decay, 0);
  EXPECT_EQ(with("AdamW", "{}").eps, 1e-8);
  EXPECT_EQ(with("SGD", R"({"momentum": 0.9})").momentum, 0.9);
  EXPECT_EQ(with("Lamb", "{}").max_coeff, 10);
  EXPECT_EQ(with("LAMB", "{}").type, OptimizerType::LAMB);
  EXPECT_EQ(parse_config(Json::object()).optimizer, std::nullopt);
}

TEST(DeepSpeedConfig, NamesUnknownKeysAndTheNearest) {
  struct Case {
    const char *json, *says;
  };
  const Case cases[] = {
      {R"({"train_batchsize": 4})",
       "train_batchsize is not a key of DeepSpeed; did you mean train_batch_size?"},
      {R"({"zero_optimization": {"stagee": 1}})",
       "zero_optimization.stagee is not a key of DeepSpeed; did you "
       "mean zero_optimization.stage?"},
      {R"({"zero_optimization": {"offload_param": {"devise": "cpu"}}})",
       "did you mean zero_optimization.offload_param.device?"},
      {R"({"stage": 2})", "stage is not a key of DeepSpeed; there is zero_optimization.stage"},
      {R"({"optimizer": {"type": "SGD", "params": {"betas": [0.9, 0.99]}}})",
       "optimizer.params.betas is not a key of DeepSpeed"},
      {R"({"optimizer": {"type": "Adam", "params": {"learning_rate": 1}}})",
       "optimizer.params.learning_rate is not a key"},
      {R"({"scheduler": {"type": "WarmupLR", "params": {"total_num_steps": 9}}})",
       "scheduler.params.total_num_steps is not a key"},
      {R"({"fp16": {"loss_scal": 0}})", "did you mean fp16.loss_scale?"},
  };
  for (const auto& [json, says] : cases) EXPECT_THAT(complaint_about(json), HasSubstr(says)) << json;
}

TEST(DeepSpeedConfig, ChecksTypesAndValuesByPath) {
  struct Case {
    const char *json, *says;
  };
  const Case cases[] = {
      {R"({"train_batch_size": "64"})", "train_batch_size is \"64\" and must be an integer"},
      {R"({"train_batch_size": 6.5})", "train_batch_size is 6.5 and must be an integer"},
      {R"({"train_batch_size": "auto"})", "train_batch_size is \"auto\": Hugging Face's Trainer replaces"},
      {R"({"optimizer": {"type": "AdamW", "params": {"lr": "auto"}}})", "optimizer.params.lr is \"auto\""},
      {R"({"zero_optimization": true})", "zero_optimization is true and must be an object"},
      {R"({"zero_optimization": {"stage": 4}})", "zero_optimization.stage is 4 and must be 0, 1, 2 or 3"},
      {R"({"zero_optimization": {"offload_param": {"device": "disk"}}})",
       "zero_optimization.offload_param.device is \"disk\" and must be \"none\", \"cpu\" or \"nvme\""},
      {R"({"zero_optimization": {"offload_param": {"device": "nvme"}}})",
       "must be \"none\" or \"cpu\" at stage 0"},
      {R"({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "nvme"}}})",
       "zero_optimization.offload_optimizer.nvme_path names no folder"},
      {R"({"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/x"}}})",
       "must be that of offload_optimizer"},
      {R"({"fp16": {"enabled": 1}})", "fp16.enabled is 1 and must be true or false"},
      {R"({"fp16": {"hysteresis": 0}})", "fp16.hysteresis is 0 and must be 1 or more"},
      {R"({"fp16": {"enabled": true}, "bf16": {"enabled": true}})", "both true"},
      {R"({"gradient_clipping": -1})", "gradient_clipping is -1 and must be 0 (none) or more"},
      {R"({"optimizer": {"params": {}}})", "optimizer needs a type"},
      {R"({"optimizer": {"type": "OneBitAdam"}})",
       "optimizer.type is \"OneBitAdam\"; served are Adam, AdamW, SGD, Lamb"},
      {R"({"optimizer": {"type": "Adam", "params": {"betas": [0.9]}}})", "must be two numbers"},
      {R"({"optimizer": {"type": "Adam", "params": {"max_grad_norm": 1}}})", "write gradient_clipping"},
      {R"({"scheduler": {"type": "warmuplr"}})", "did you mean WarmupLR?"},
      {R"({"scheduler": {"type": "WarmupDecayLR", "params": {}}})",
       "scheduler.params.total_num_steps is needed"},
      {R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_type": "cubic"}}})",
       "scheduler.params.warmup_type is \"cubic\" and must be \"log\" or \"linear\""},
      {R"({"amp": {"enabled": true}})", "amp is not possible: Apex's amp is in compat/apex/amp.h"},
      {R"({"gradient_allreduce_op": "sum"})",
       "gradient_allreduce_op is not possible: gradients are averaged"},
      {R"({"train_batch_size": 1, "train_batch_size": 2})", "\"train_batch_size\" is twice in one object"},
      {R"({"wall_clock_breakdown": False})", "is no JSON"},
      {"[]", "it is no JSON object"},
  };
  for (const auto& [json, says] : cases) EXPECT_THAT(complaint_about(json), HasSubstr(says)) << json;
}

TEST(DeepSpeedConfig, AcceptsWhatAsksForNothing) {
  EXPECT_EQ(complaint_about(R"({"amp": {"enabled": false}, "communication_data_type": null,
      "gradient_allreduce_op": "mean", "zero_optimization": {"mics_shard_size": -1, "sub_group_size": 1e9,
      "zero_quantized_weights": false, "offload_optimizer": {"device": "cpu"}, "offload_param": null}})"),
            "");
}

TEST(DeepSpeedConfig, ReadsSchedulers) {
  const auto with = [](const char* scheduler) {
    return *parse_config({{"scheduler", Json::parse(scheduler)}}).scheduler;
  };
  const auto warmup = std::get<WarmupLR>(with(
      R"({"type": "WarmupLR", "params": {"warmup_max_lr": 2, "warmup_num_steps": 5, "warmup_type": "linear"}})"));
  EXPECT_EQ(warmup.warmup_max_lr, 2);
  EXPECT_EQ(warmup.warmup_num_steps, 5);
  EXPECT_EQ(warmup.warmup_type, WarmupType::LINEAR);
  EXPECT_EQ(std::get<WarmupCosineLR>(with(R"({"type": "WarmupCosineLR", "params": {"total_num_steps": 9}})"))
                .total_num_steps,
            9);
  EXPECT_EQ(
      std::get<OneCycle>(with(R"({"type": "OneCycle", "params": {"cycle_min_lr": 1, "cycle_max_lr": 2}})"))
          .cycle_min_mom,
      0.8);
  EXPECT_EQ(std::get<LRRangeTest>(with(R"({"type": "LRRangeTest"})")).lr_range_test_step_size, 2000);
}

// train, micro, accumulation as given and on how many ranks, and what they come to; 0: not given.
TEST(DeepSpeedConfig, BatchSizesFollowTheIdentity) {
  struct Case {
    std::int64_t train, micro, accumulation;
    int ranks;
    std::int64_t to_train, to_micro, to_accumulation;
  };
  const auto given = [](std::int64_t value) { return value == 0 ? std::nullopt : std::optional(value); };
  for (const Case& c : std::vector<Case>{{32, 4, 2, 4, 32, 4, 2},
                                         {32, 4, 0, 4, 32, 4, 2},
                                         {32, 0, 2, 4, 32, 4, 2},
                                         {0, 4, 2, 4, 32, 4, 2},
                                         {32, 0, 0, 4, 32, 8, 1},
                                         {0, 4, 0, 4, 16, 4, 1},
                                         {64, 0, 4, 1, 64, 16, 4}}) {
    const BatchSizes sizes = batch_sizes({given(c.train), given(c.micro), given(c.accumulation)}, c.ranks);
    EXPECT_EQ(sizes.train, c.to_train);
    EXPECT_EQ(sizes.micro, c.to_micro);
    EXPECT_EQ(sizes.accumulation, c.to_accumulation);
  }
  const auto refused = [&](std::int64_t train, std::int64_t micro, std::int64_t accumulation, int ranks) {
    try {
      batch_sizes({given(train), given(micro), given(accumulation)}, ranks);
    } catch (const InvalidArgument& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refused(33, 4, 2, 4), HasSubstr("train_batch_size is 33, train_micro_batch_size_per_gpu 4, "
                                              "gradient_accumulation_steps 2, with 4 ranks"));
  EXPECT_THAT(refused(32, 0, 3, 4), HasSubstr("train_micro_batch_size_per_gpu 2,"));
  EXPECT_THAT(refused(2, 0, 0, 4), HasSubstr("train_micro_batch_size_per_gpu 0,"));
  EXPECT_THAT(refused(0, 0, 4, 1), HasSubstr("is needed"));
  EXPECT_THAT(refused(0, -1, 0, 1), HasSubstr("train_micro_batch_size_per_gpu is -1"));
}

TEST(DeepSpeedConfig, AGroupHasTheOptimizersOptionsAndItsOwn) {
  const OptimizerConfig sgd{.type = OptimizerType::SGD, .lr = 0.5, .weight_decay = 0.1, .momentum = 0.9};
  const OptimizerConfig group =
      with_options(sgd, {{"weight_decay", 0}, {"lr", 1e-3}, {"momentum", nullptr}}, "g");
  EXPECT_EQ(group.type, OptimizerType::SGD);
  EXPECT_EQ(group.lr, 1e-3);
  EXPECT_EQ(group.weight_decay, 0);
  EXPECT_EQ(group.momentum, 0.9);
  const auto complaint = [](OptimizerType type, const Json& options) {
    try {
      with_options({.type = type}, options, "g");
    } catch (const InvalidArgument& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(complaint(OptimizerType::LAMB, {{"max_coeff", 5}, {"betas", {0.9, 0.95}}}), "");
  EXPECT_THAT(complaint(OptimizerType::ADAMW, {{"betas", {0.9}}}), HasSubstr("g.betas is [0.9] and must be"));
  EXPECT_THAT(complaint(OptimizerType::ADAMW, {{"lr", "high"}}), HasSubstr("g.lr is \"high\" and must be"));
  EXPECT_THAT(complaint(OptimizerType::SGD, {{"betas", {0.9, 0.9}}}), HasSubstr("g.betas is not a key"));
  EXPECT_THAT(complaint(OptimizerType::ADAM, {{"adam_w_mode", true}}),
              HasSubstr("g.adam_w_mode cannot differ"));
  EXPECT_THAT(complaint(OptimizerType::ADAM, {{"fused", true}}), HasSubstr("g.fused cannot differ"));
  EXPECT_THAT(complaint(OptimizerType::SGD, Json::array()), HasSubstr("g is no JSON object"));
}

TEST(DeepSpeedConfig, KeysAreTheOnesInTheDocs) {
  std::ifstream file(testing::source_folder() + "/docs/deepspeed.md");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_THAT(text.str(), HasSubstr(config_keys_as_markdown()))
      << "write the table of config_keys_as_markdown() there";
}

}  // namespace
}  // namespace lockstep::compat::deepspeed

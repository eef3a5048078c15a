// DeepSpeed's configuration: from its JSON to a struct, with DeepSpeed's keys, meaning and defaults.
//
//   namespace deepspeed = lockstep::compat::deepspeed;
//   const deepspeed::Config config = deepspeed::read_config("ds_config.json");
//   for (const std::string& note : config.notes) std::puts(note.c_str());    // keys that have no effect here
//   const deepspeed::BatchSizes batch = deepspeed::batch_sizes(config.batch, /*ranks=*/8);
//
// As JSON in the program, in place of Python's dict:
//
//   const deepspeed::Config config = deepspeed::parse_config({
//       {"train_batch_size", 64},
//       {"gradient_accumulation_steps", 4},
//       {"optimizer", {{"type", "Adam"}, {"params", {{"lr", 1e-5}}}}},
//       {"zero_optimization", {{"stage", 3}}},
//   });
//
// Keys     config_keys.h has them all. An unknown one is refused at any depth, with the nearest known; so is
//          one that asks for something that does not exist here. A value of null counts as not given.
// Numbers  an integer may be written as 5e8.
// "auto"   is a word of Hugging Face's Trainer, which replaces it. It is refused by name.
// Pure     nothing but read_config() touches anything, and nobody communicates.
// Throws   InvalidArgument, with the path of the key ("zero_optimization.stage"); FormatError: no JSON, or a
//          key that is there twice; SystemError: a file that cannot be read.
// Source   docs/_pages/config-json.md and deepspeed/runtime/config.py of DeepSpeed.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/compat/deepspeed/schedules.h"

namespace lockstep::compat::deepspeed {

// Samples of a step of the optimiser, samples of a forward pass, and forward passes of a step on each rank.
struct BatchSizes {
  std::optional<std::int64_t> train;         // train_batch_size, of all ranks together
  std::optional<std::int64_t> micro;         // train_micro_batch_size_per_gpu
  std::optional<std::int64_t> accumulation;  // gradient_accumulation_steps
};

enum class OptimizerType { ADAM, ADAMW, SGD, LAMB };

// What a type has no use for stays at its default.
struct OptimizerConfig {
  OptimizerType type = OptimizerType::ADAMW;  // ADAM: weight decay is part of the gradient
  double lr = 1e-3;
  std::pair<double, double> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;
  bool amsgrad = false;
  double momentum = 0;
  double dampening = 0;
  bool nesterov = false;
  bool bias_correction = true;
  double max_coeff = 10;
  double min_coeff = 0.01;
};

enum class Precision { FLOAT32, FLOAT16, BFLOAT16 };

struct PrecisionConfig {
  Precision type = Precision::FLOAT32;
  bool auto_cast = false;       // inputs become float16
  bool check_overflow = false;  // a step whose gradients are not finite is skipped
  double loss_scale = 1;        // 0: dynamic, by what follows
  std::int64_t initial_scale_power = 16;
  std::int64_t loss_scale_window = 1000;
  std::int64_t hysteresis = 2;
  bool consecutive_hysteresis = false;
  double min_loss_scale = 1;
};

struct OffloadConfig {
  std::string nvme_path;    // empty: nothing is offloaded to files
  bool to_host = false;     // the optimiser's state of a model on a GPU; that of others is there anyway
  bool parameters = false;  // to files, beside the optimiser's state
  bool parameters_to_host = false;  // of a model on a GPU, likewise beside it
};

// What stage 3 gathers over messages, in elements of parameters (parallel/zero/sharded_options.h).
struct GatherConfig {
  std::int64_t param_persistence_threshold = 100'000;
  std::int64_t model_persistence_threshold = std::numeric_limits<std::int64_t>::max();
  std::int64_t max_live_parameters = 1'000'000'000;
  std::int64_t prefetch_bucket_size = 50'000'000;
};

struct Config {
  BatchSizes batch;  // as given
  std::optional<OptimizerConfig> optimizer;
  std::optional<SchedulePlan> scheduler;
  PrecisionConfig precision;
  double gradient_clipping = 1;  // 0: none
  int zero_stage = 0;
  OffloadConfig offload;
  GatherConfig gather;
  std::int64_t steps_per_print = 0;  // 0: never
  bool dataloader_drop_last = false;
  std::vector<std::string> notes;  // "zero_optimization.overlap_comm has no effect: ..."
};

Config parse_config(const nlohmann::json& json);
Config parse_config_text(const std::string& text, const std::string& name = "DeepSpeed config");
Config read_config(const std::string& path);

// The optimiser of a parameter group: what `options` has, keys of "optimizer.params", is the group's own.
// `shown` is how messages call the group. Throws InvalidArgument: a key that the type does not have, or that
// is of the whole optimiser.
OptimizerConfig with_options(OptimizerConfig config, const nlohmann::json& options, const std::string& shown);

// All three, of which the product of micro, accumulation and ranks is train. Throws InvalidArgument, with the
// three numbers, where it is not, where one is below 1, and where neither train nor micro is given.
BatchSizes batch_sizes(const BatchSizes& given, int ranks);

}  // namespace lockstep::compat::deepspeed

#include "lockstep/compat/deepspeed/config.h"

#include <cmath>
#include <set>
#include <type_traits>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/compat/deepspeed/config_check.h"
#include "lockstep/os/plain_file.h"

namespace lockstep::compat::deepspeed {
namespace {

using Json = nlohmann::json;

// ------------------------------------------------------------------------------------------------- values

// A section whose keys and types were checked.
class Section {
 public:
  Section(const Json& json, const std::string& path) : path_(path) {
    if (const auto found = json.find(path.substr(path.rfind('.') + 1));
        found != json.end() && !found->is_null())
      json_ = *found;
  }
  explicit Section(const Json& json) : json_(json) {}
  static Section called(const std::string& path, const Json& json) {
    Section section(json);
    section.path_ = path;
    return section;
  }

  bool is_given(const char* key) const { return json_.contains(key) && !json_[key].is_null(); }
  template <typename Value> void get(const char* key, Value& value) const {
    if (!is_given(key)) return;
    if constexpr (std::is_same_v<Value, std::int64_t>) {
      value = json_[key].is_number_integer() ? json_[key].get<std::int64_t>()
                                             : static_cast<std::int64_t>(json_[key].get<double>());
    } else {
      value = json_[key].get<Value>();
    }
  }
  template <typename Value> void get(const char* key, std::optional<Value>& value) const {
    if (is_given(key)) get(key, value.emplace());
  }
  template <typename Value> Value at(const char* key, Value otherwise) const {
    get(key, otherwise);
    return otherwise;
  }
  const Json& json() const { return json_; }
  const std::string& path() const { return path_; }
  std::string path_of(const char* key) const { return below(path_, key); }
  void require(const char* key) const {
    if (!is_given(key)) refuse_config(path_of(key) + " is needed");
  }

 private:
  Json json_ = Json::object();
  std::string path_;
};

void expect_value(bool holds, const Section& section, const char* key, const char* wanted) {
  if (!holds)
    refuse_config(
        lockstep::str(section.path_of(key), " is ", section.json()[key].dump(), " and must be ", wanted));
}

void expect_at_least(const Section& section, const char* key, double least, const char* wanted) {
  expect_value(!section.is_given(key) || section.json()[key].get<double>() >= least, section, key, wanted);
}

void read_options(const Section& params, OptimizerConfig& config) {
  params.get("lr", config.lr);
  if (params.is_given("betas")) {
    expect_value(params.json()["betas"].size() == 2, params, "betas", "two numbers");
    config.betas = {params.json()["betas"][0].get<double>(), params.json()["betas"][1].get<double>()};
  }
  params.get("eps", config.eps);
  params.get("weight_decay", config.weight_decay);
  params.get("amsgrad", config.amsgrad);
  params.get("momentum", config.momentum);
  params.get("dampening", config.dampening);
  params.get("nesterov", config.nesterov);
  params.get("bias_correction", config.bias_correction);
  params.get("max_coeff", config.max_coeff);
  params.get("min_coeff", config.min_coeff);
}

OptimizerConfig read_optimizer(const Json& json) {
  const std::string type = chosen_type(json, "optimizer");
  const Section params(json, "optimizer.params");
  OptimizerConfig config;
  if (type == "SGD") config.type = OptimizerType::SGD;
  if (type == "Lamb") config.type = OptimizerType::LAMB;
  // DeepSpeed's Adam is AdamW unless adam_w_mode says otherwise.
  if (type == "Adam" && !params.at("adam_w_mode", true)) config.type = OptimizerType::ADAM;
  if (config.type == OptimizerType::ADAMW && params.at("torch_adam", false)) config.weight_decay = 0.01;
  read_options(params, config);
  return config;
}

const char* type_name(OptimizerType type) {
  switch (type) {
    case OptimizerType::ADAM: return "Adam";
    case OptimizerType::ADAMW: return "AdamW";
    case OptimizerType::SGD: return "SGD";
    case OptimizerType::LAMB: return "Lamb";
  }
  return "";
}

WarmupType warmup_type_of(const Section& params) {
  const std::string type = params.at("warmup_type", std::string("log"));
  expect_value(type == "log" || type == "linear", params, "warmup_type", "\"log\" or \"linear\"");
  return type == "log" ? WarmupType::LOG : WarmupType::LINEAR;
}

SchedulePlan read_warmup(const Section& params, const std::string& type) {
  if (type == "WarmupLR") {
    WarmupLR plan{.warmup_type = warmup_type_of(params)};
    params.get("warmup_min_lr", plan.warmup_min_lr);
    params.get("warmup_max_lr", plan.warmup_max_lr);
    params.get("warmup_num_steps", plan.warmup_num_steps);
    return plan;
  }
  params.require("total_num_steps");
  if (type == "WarmupDecayLR") {
    WarmupDecayLR plan{.warmup_type = warmup_type_of(params)};
    params.get("total_num_steps", plan.total_num_steps);
    params.get("warmup_min_lr", plan.warmup_min_lr);
    params.get("warmup_max_lr", plan.warmup_max_lr);
    params.get("warmup_num_steps", plan.warmup_num_steps);
    return plan;
  }
  WarmupCosineLR plan{.warmup_type = warmup_type_of(params)};
  params.get("total_num_steps", plan.total_num_steps);
  params.get("warmup_min_ratio", plan.warmup_min_ratio);
  params.get("warmup_num_steps", plan.warmup_num_steps);
  params.get("cos_min_ratio", plan.cos_min_ratio);
  return plan;
}

OneCycle read_one_cycle(const Section& params) {
  OneCycle plan;
  params.require("cycle_min_lr");
  params.require("cycle_max_lr");
  params.get("cycle_min_lr", plan.cycle_min_lr);
  params.get("cycle_max_lr", plan.cycle_max_lr);
  params.get("decay_lr_rate", plan.decay_lr_rate);
  params.get("cycle_first_step_size", plan.cycle_first_step_size);
  params.get("cycle_second_step_size", plan.cycle_second_step_size);
  params.get("cycle_first_stair_count", plan.cycle_first_stair_count);
  params.get("cycle_second_stair_count", plan.cycle_second_stair_count);
  params.get("decay_step_size", plan.decay_step_size);
  params.get("cycle_momentum", plan.cycle_momentum);
  params.get("cycle_min_mom", plan.cycle_min_mom);
  params.get("cycle_max_mom", plan.cycle_max_mom);
  params.get("decay_mom_rate", plan.decay_mom_rate);
  return plan;
}

SchedulePlan read_scheduler(const Json& json) {
  const std::string type = chosen_type(json, "scheduler");
  const Section params(json, "scheduler.params");
  SchedulePlan plan;
  if (type == "OneCycle") {
    plan = read_one_cycle(params);
  } else if (type == "LRRangeTest") {
    LRRangeTest range;
    params.get("lr_range_test_min_lr", range.lr_range_test_min_lr);
    params.get("lr_range_test_step_size", range.lr_range_test_step_size);
    params.get("lr_range_test_step_rate", range.lr_range_test_step_rate);
    params.get("lr_range_test_staircase", range.lr_range_test_staircase);
    plan = range;
  } else {
    plan = read_warmup(params, type);
  }
  check_schedule(plan);
  return plan;
}

PrecisionConfig read_precision(const Json& json) {
  const Section fp16(json, "fp16");
  const Section bf16(json, json.contains("bf16") ? "bf16" : "bfloat16");
  PrecisionConfig precision;
  if (fp16.at("enabled", false) && bf16.at("enabled", false))
    refuse_config("fp16.enabled and bf16.enabled are both true; a model has one precision");
  if (bf16.at("enabled", false)) {
    precision.type = Precision::BFLOAT16;
    precision.check_overflow = bf16.at("check_grad_overflow", true);
  }
  expect_at_least(fp16, "loss_scale", 0, "0 (dynamic) or more");
  expect_at_least(fp16, "loss_scale_window", 1, "1 or more");
  expect_at_least(fp16, "hysteresis", 1, "1 or more");
  expect_at_least(fp16, "min_loss_scale", 0, "0 or more");
  expect_value(std::abs(fp16.at("initial_scale_power", std::int64_t{16})) <= 127, fp16, "initial_scale_power",
               "from -127 to 127");
  if (!fp16.at("enabled", false)) return precision;
  precision.type = Precision::FLOAT16;
  precision.check_overflow = true;
  precision.loss_scale = fp16.at("loss_scale", 0.0);
  fp16.get("auto_cast", precision.auto_cast);
  fp16.get("initial_scale_power", precision.initial_scale_power);
  fp16.get("loss_scale_window", precision.loss_scale_window);
  fp16.get("hysteresis", precision.hysteresis);
  fp16.get("consecutive_hysteresis", precision.consecutive_hysteresis);
  fp16.get("min_loss_scale", precision.min_loss_scale);
  return precision;
}

int read_stage(const Json& json) {
  const Section zero(json, "zero_optimization");
  const auto stage = zero.at("stage", std::int64_t{0});
  expect_value(stage >= 0 && stage <= 3, zero, "stage", "0, 1, 2 or 3");
  return static_cast<int>(stage);
}

// Where a section offloads to; empty unless to files.
std::string read_nvme_path(const Section& section, int stage) {
  const std::string device = section.at("device", std::string("none"));
  expect_value(device == "none" || device == "cpu" || device == "nvme", section, "device",
               "\"none\", \"cpu\" or \"nvme\"");
  if (device != "nvme") return "";
  expect_value(stage > 0, section, "device", "\"none\" or \"cpu\" at stage 0");
  const std::string path = section.at("nvme_path", std::string());
  if (path.empty())
    refuse_config(section.path_of("nvme_path") + " names no folder, which the device \"nvme\" needs");
  return path;
}

OffloadConfig read_offload(const Json& json, int stage) {
  const Section zero(json, "zero_optimization");
  const Section parameters(zero.json(), "zero_optimization.offload_param");
  const Section state(zero.json(), "zero_optimization.offload_optimizer");
  const std::string of_state = read_nvme_path(state, stage);
  const std::string of_parameters = read_nvme_path(parameters, stage);
  expect_value(
      of_parameters.empty() || of_parameters == of_state, parameters, "nvme_path",
      "that of offload_optimizer with the device \"nvme\": state and parameters are offloaded to one folder");
  const auto is_to_host = [](const Section& section) {
    return section.at("device", std::string("none")) == "cpu";
  };
  return {.nvme_path = of_state,
          .to_host = is_to_host(state),
          .parameters = !of_parameters.empty(),
          .parameters_to_host = stage == 3 && is_to_host(parameters)};
}

// DeepSpeed takes each key with "stage3_" before it and without.
GatherConfig read_gather(const Json& json) {
  const Section zero(json, "zero_optimization");
  GatherConfig config;
  const auto read = [&](const std::string& key, std::int64_t& value) {
    for (const std::string& name : {key, "stage3_" + key}) {
      expect_at_least(zero, name.c_str(), 0, "0 or more");
      zero.get(name.c_str(), value);
    }
  };
  read("param_persistence_threshold", config.param_persistence_threshold);
  read("model_persistence_threshold", config.model_persistence_threshold);
  read("max_live_parameters", config.max_live_parameters);
  read("prefetch_bucket_size", config.prefetch_bucket_size);
  return config;
}

// ---------------------------------------------------------------------------------------------- batch sizes

void expect_positive(const std::optional<std::int64_t>& value, const char* name) {
  if (value && *value < 1) refuse_config(lockstep::str(name, " is ", *value, " and must be 1 or more"));
}

std::string equation(const BatchSizes& sizes, int ranks) {
  return lockstep::str("train_batch_size is ", *sizes.train, ", train_micro_batch_size_per_gpu ",
                       *sizes.micro, ", gradient_accumulation_steps ", *sizes.accumulation, ", with ", ranks,
                       ranks == 1 ? " rank" : " ranks");
}

// Refuses two keys of one object that have one name, of which JSON readers keep the last.
struct UniqueKeys {
  bool operator()(int /*depth*/, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) names.emplace_back();
    if (event == Json::parse_event_t::object_end) names.pop_back();
    if (event == Json::parse_event_t::key && !names.back().insert(parsed.get<std::string>()).second)
      throw FormatError(
          lockstep::str(file, ": the key ", in_quotes(parsed.get<std::string>()), " is twice in one object"));
    return true;
  }
  const std::string& file;
  std::vector<std::set<std::string>> names = {};
};

}  // namespace

Config parse_config(const Json& json) {
  Config config;
  config.notes = check_config(json);
  const Section all(json);
  all.get("train_batch_size", config.batch.train);
  all.get("train_micro_batch_size_per_gpu", config.batch.micro);
  all.get("gradient_accumulation_steps", config.batch.accumulation);
  all.get("gradient_clipping", config.gradient_clipping);
  all.get("steps_per_print", config.steps_per_print);
  all.get("dataloader_drop_last", config.dataloader_drop_last);
  expect_at_least(all, "gradient_clipping", 0, "0 (none) or more");
  expect_at_least(all, "steps_per_print", 0, "0 (never) or more");
  if (all.is_given("optimizer")) config.optimizer = read_optimizer(json["optimizer"]);
  if (all.is_given("scheduler")) config.scheduler = read_scheduler(json["scheduler"]);
  config.precision = read_precision(json);
  config.zero_stage = read_stage(json);
  config.offload = read_offload(json, config.zero_stage);
  config.gather = read_gather(json);
  return config;
}

Config parse_config_text(const std::string& text, const std::string& name) {
  Json json;
  try {
    json = Json::parse(text, UniqueKeys{name});
  } catch (const Json::parse_error& error) {
    throw FormatError(lockstep::str(name, " is no JSON: ", printable(error.what()),
                                    ". Python's True and comments are true and nothing in JSON"));
  }
  return parse_config(json);
}

Config read_config(const std::string& path) { return parse_config_text(read_plain_file(path), path); }

OptimizerConfig with_options(OptimizerConfig config, const nlohmann::json& options,
                             const std::string& shown) {
  check_group_options(options, shown, type_name(config.type));
  read_options(Section::called(shown, options), config);
  return config;
}

BatchSizes batch_sizes(const BatchSizes& given, int ranks) {
  expect_positive(given.train, "train_batch_size");
  expect_positive(given.micro, "train_micro_batch_size_per_gpu");
  expect_positive(given.accumulation, "gradient_accumulation_steps");
  if (!given.train && !given.micro)
    refuse_config("train_batch_size or train_micro_batch_size_per_gpu is needed");
  BatchSizes sizes = given;
  if (!sizes.accumulation)
    sizes.accumulation = given.train && given.micro ? *given.train / *given.micro / ranks : 1;
  if (!sizes.micro) sizes.micro = *given.train / ranks / *sizes.accumulation;
  if (!sizes.train) sizes.train = *sizes.micro * *sizes.accumulation * ranks;
  if (*sizes.micro < 1 || *sizes.accumulation < 1 ||
      *sizes.train != *sizes.micro * *sizes.accumulation * ranks)
    refuse_config(equation(sizes, ranks) + ": the first must be the product of the others, each 1 or more");
  return sizes;
}

}  // namespace lockstep::compat::deepspeed

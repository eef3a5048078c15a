#include "lockstep/compat/deepspeed/config_keys.h"

#include <algorithm>
#include <array>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::compat::deepspeed {
namespace {

using enum KeyEffect;

constexpr std::string_view IN_CPU_MEMORY = "parameters, gradients and state lie in CPU memory already";
constexpr std::string_view AS_READ =
    "what an operator reads is gathered before it runs, and what was read longest ago goes first";
constexpr std::string_view BY_SIZE = "Lockstep chooses by size, as it was measured (docs/performance.md)";
constexpr std::string_view OBSERVED = "see lockstep report, dist::Profiler and dist::SummaryWriter";
constexpr std::string_view ONE_KIND = "there is one implementation";
constexpr std::string_view CLIPPING = "write gradient_clipping, outside of the optimiser";
constexpr std::string_view ANY_RANKS = "all ranks write, and any number of ranks loads";
constexpr std::string_view FORMULA = "schedules.h has the formula and the defaults";
constexpr std::string_view STARTS = "load_checkpoint() sets the step";
constexpr std::string_view OF_MODEL = "this is the model's and the program's work";
constexpr std::string_view OF_ADAM = "defaults: 1e-3, [0.9, 0.999], 1e-8, 0, false";

// Keys of one section that do the same, each with its type. "section" has keys of its own; below "anything"
// nothing is looked at.
struct Row {
  std::string_view section;
  std::string_view keys;
  KeyEffect effect;
  std::string_view what;
  std::string_view harmless = "";
};

constexpr std::array ROWS = std::to_array<Row>({
    {"",
     "train_batch_size:integer train_micro_batch_size_per_gpu:integer gradient_accumulation_steps:integer",
     SERVED, "train = micro x accumulation x ranks; one or two of them give the others"},
    {"", "gradient_clipping:number", SERVED,
     "the largest norm of all gradients together; default 1, 0: not clipped"},
    {"", "steps_per_print:integer", SERVED, "rank 0 logs every so many steps (base/log.h); default: never"},
    {"", "dataloader_drop_last:bool", SERVED,
     "whether deepspeed_io() leaves out a last batch that is not full; default false"},
    {"",
     "optimizer:section scheduler:section fp16:section bf16:section bfloat16:section "
     "zero_optimization:section",
     SERVED, "below"},
    {"",
     "activation_checkpointing:section checkpoint:section data_types:section aio:section "
     "flops_profiler:section "
     "comms_logger:section tensorboard:section wandb:section csv_monitor:section comet:section "
     "timers:section",
     SERVED, "below"},
    {"", "prescale_gradients:bool gradient_predivide_factor:number", NO_EFFECT,
     "sums are in float32 and divided once, so nothing overflows on the way"},
    {"", "communication_data_type:text seq_parallel_communication_data_type:text", NO_EFFECT,
     "gradients travel in their own type and are summed in float32"},
    {"", "gradient_allreduce_op:text", REFUSED,
     "gradients are averaged; for sums multiply the loss by the number of ranks", "\"mean\""},
    {"", "sparse_gradients:bool", NO_EFFECT,
     "sparse gradients travel as rows wherever the model makes them (stage 0)"},
    {"", "disable_allgather:bool zero_allow_untested_optimizer:bool zero_force_ds_cpu_optimizer:bool",
     NO_EFFECT, "there is nothing of the kind to switch"},
    {"", "wall_clock_breakdown:bool memory_breakdown:bool dump_state:bool", NO_EFFECT, OBSERVED},
    {"", "sequence_parallel_size:integer", REFUSED, "sequence parallelism is not served", "1"},
    {"", "use_data_before_expert_parallelism:bool graph_harvesting:bool", REFUSED,
     "expert parallelism and CUDA graphs are not served", "false"},
    {"", "amp:anything", REFUSED, "Apex's amp is in compat/apex/amp.h; here write fp16 or bf16"},
    {"", "torch_autocast:anything", REFUSED, "write fp16 or bf16, or use dist::autocast in the model"},
    {"",
     "elasticity:anything autotuning:anything compression_training:anything hybrid_engine:anything "
     "tensor_parallel:anything pipeline:anything nebula:anything compile:anything eigenvalue:anything "
     "quantize_training:anything weight_quantization:anything",
     REFUSED, "not served"},
    {"",
     "data_efficiency:anything curriculum_learning:anything progressive_layer_drop:anything "
     "sparse_attention:anything",
     REFUSED, OF_MODEL},
    {"optimizer", "type:text", SERVED, "Adam, AdamW, SGD or Lamb"},
    {"optimizer", "params:section", SERVED, "below, by type"},
    {"optimizer", "legacy_fusion:bool", NO_EFFECT, ONE_KIND},
    {"optimizer.params[Adam]", "lr:number betas:numbers eps:number weight_decay:number amsgrad:bool", SERVED,
     OF_ADAM},
    {"optimizer.params[Adam]", "adam_w_mode:bool", SERVED,
     "weight decay is decoupled unless this is false, as in DeepSpeed"},
    {"optimizer.params[Adam]", "torch_adam:bool", SERVED,
     "with decoupled weight decay its default is 0.01, as in torch"},
    {"optimizer.params[Adam]", "bias_correction:bool", REFUSED, "moments are always corrected", "true"},
    {"optimizer.params[Adam]", "max_grad_norm:number", REFUSED, CLIPPING, "0"},
    {"optimizer.params[Adam]", "fused:bool set_grad_none:bool fp32_optimizer_states:bool", NO_EFFECT,
     ONE_KIND},
    {"optimizer.params[AdamW]", "lr:number betas:numbers eps:number weight_decay:number amsgrad:bool", SERVED,
     OF_ADAM},
    {"optimizer.params[AdamW]", "torch_adam:bool", SERVED,
     "the default of weight_decay is 0.01, as in torch"},
    {"optimizer.params[AdamW]", "bias_correction:bool", REFUSED, "moments are always corrected", "true"},
    {"optimizer.params[AdamW]", "max_grad_norm:number", REFUSED, CLIPPING, "0"},
    {"optimizer.params[AdamW]", "adam_w_mode:bool fused:bool set_grad_none:bool fp32_optimizer_states:bool",
     NO_EFFECT, ONE_KIND},
    {"optimizer.params[SGD]", "lr:number momentum:number dampening:number weight_decay:number nesterov:bool",
     SERVED, "defaults: 1e-3, 0, 0, 0, false"},
    {"optimizer.params[SGD]", "max_grad_norm:number", REFUSED, CLIPPING, "0"},
    {"optimizer.params[Lamb]",
     "lr:number betas:numbers eps:number weight_decay:number bias_correction:bool "
     "max_coeff:number min_coeff:number",
     SERVED, "defaults: 1e-3, [0.9, 0.999], 1e-8, 0, true, 10, 0.01"},
    {"optimizer.params[Lamb]", "max_grad_norm:number", REFUSED, CLIPPING, "0"},
    {"optimizer.params[Lamb]", "eps_inside_sqrt:bool amsgrad:bool", REFUSED, "LAMB has neither here",
     "false"},
    {"scheduler", "type:text", SERVED, "WarmupLR, WarmupDecayLR, WarmupCosineLR, OneCycle or LRRangeTest"},
    {"scheduler", "params:section", SERVED, "below, by type"},
    {"scheduler.params[WarmupLR]",
     "warmup_min_lr:number warmup_max_lr:number warmup_num_steps:integer warmup_type:text", SERVED, FORMULA},
    {"scheduler.params[WarmupLR]", "last_batch_iteration:integer", REFUSED, STARTS, "-1"},
    {"scheduler.params[WarmupDecayLR]",
     "total_num_steps:integer warmup_min_lr:number warmup_max_lr:number "
     "warmup_num_steps:integer warmup_type:text",
     SERVED, FORMULA},
    {"scheduler.params[WarmupDecayLR]", "last_batch_iteration:integer", REFUSED, STARTS, "-1"},
    {"scheduler.params[WarmupCosineLR]",
     "total_num_steps:integer warmup_min_ratio:number warmup_num_steps:integer "
     "cos_min_ratio:number warmup_type:text",
     SERVED, FORMULA},
    {"scheduler.params[WarmupCosineLR]", "last_batch_iteration:integer", REFUSED, STARTS, "-1"},
    {"scheduler.params[OneCycle]",
     "cycle_min_lr:number cycle_max_lr:number decay_lr_rate:number "
     "cycle_first_step_size:integer cycle_second_step_size:integer cycle_first_stair_count:integer "
     "cycle_second_stair_count:integer decay_step_size:integer cycle_momentum:bool cycle_min_mom:number "
     "cycle_max_mom:number decay_mom_rate:number",
     SERVED, FORMULA},
    {"scheduler.params[OneCycle]", "last_batch_iteration:integer", REFUSED, STARTS, "-1"},
    {"scheduler.params[LRRangeTest]",
     "lr_range_test_min_lr:number lr_range_test_step_size:integer "
     "lr_range_test_step_rate:number lr_range_test_staircase:bool",
     SERVED, FORMULA},
    {"scheduler.params[LRRangeTest]", "last_batch_iteration:integer", REFUSED, STARTS, "-1"},
    {"fp16",
     "enabled:bool auto_cast:bool loss_scale:number initial_scale_power:integer loss_scale_window:integer "
     "hysteresis:integer consecutive_hysteresis:bool min_loss_scale:number",
     SERVED, "defaults: false, false, 0 (dynamic), 16, 1000, 2, false, 1"},
    {"fp16", "fp16_master_weights_and_grads:bool", REFUSED, "masters are float32", "false"},
    {"bf16", "enabled:bool check_grad_overflow:bool", SERVED, "defaults: false, true"},
    {"bf16", "immediate_grad_update:bool", NO_EFFECT, "gradients are reduced when the optimiser steps"},
    {"bf16", "bf16_master_weights_and_grads:bool bf16_optimizer_states:bool", REFUSED, "masters are float32",
     "false"},
    {"bfloat16", "enabled:bool check_grad_overflow:bool", SERVED, "the old name of bf16"},
    {"bfloat16", "immediate_grad_update:bool", NO_EFFECT, "gradients are reduced when the optimiser steps"},
    {"bfloat16", "bf16_master_weights_and_grads:bool bf16_optimizer_states:bool", REFUSED,
     "masters are float32", "false"},
    {"zero_optimization", "stage:integer", SERVED,
     "0: DistributedDataParallel; 1, 2 and 3: ShardedDataParallel with that stage (docs/zero.md)"},
    {"zero_optimization", "offload_optimizer:section offload_param:section leaf_module:section", SERVED,
     "below"},
    {"zero_optimization",
     "contiguous_gradients:bool reduce_scatter:bool reduce_bucket_size:integer "
     "allgather_partitions:bool allgather_bucket_size:integer allgather_size:integer overlap_comm:bool "
     "sub_group_size:integer use_multi_rank_bucket_allreduce:bool round_robin_gradients:bool",
     NO_EFFECT, BY_SIZE},
    {"zero_optimization",
     "stage3_param_persistence_threshold:integer stage3_model_persistence_threshold:integer "
     "stage3_max_live_parameters:integer stage3_prefetch_bucket_size:integer "
     "param_persistence_threshold:integer model_persistence_threshold:integer max_live_parameters:integer "
     "prefetch_bucket_size:integer",
     SERVED,
     "elements of parameters; defaults: 1e5, no limit, 1e9, 5e7. Nothing is gathered on one machine over "
     "shm"},
    {"zero_optimization",
     "stage3_max_reuse_distance:integer stage3_module_granularity_threshold:integer "
     "stage3_use_all_reduce_for_fetch_params:bool stage3_allgather_sequential:bool "
     "stage3_partition_stream_chunk_size:integer max_reuse_distance:integer "
     "module_granularity_threshold:integer use_all_reduce_for_fetch_params:bool allgather_sequential:bool "
     "partition_stream_chunk_size:integer memory_efficient_linear:bool override_module_apply:bool "
     "log_trace_cache_warnings:bool enable_sanity_checks:bool",
     NO_EFFECT, AS_READ},
    {"zero_optimization",
     "stage3_gather_16bit_weights_on_model_save:bool stage3_gather_fp16_weights_on_model_save:bool "
     "gather_16bit_weights_on_model_save:bool",
     NO_EFFECT, "a checkpoint has whole tensors at every stage"},
    {"zero_optimization",
     "load_from_fp32_weights:bool elastic_checkpoint:bool pipeline_loading_checkpoint:bool "
     "legacy_stage1:bool",
     NO_EFFECT, ANY_RANKS},
    {"zero_optimization", "ignore_unused_parameters:bool", NO_EFFECT,
     "a parameter that got a gradient on no rank is not stepped"},
    {"zero_optimization",
     "cpu_offload:bool cpu_offload_param:bool cpu_offload_params:bool cpu_offload_use_pin_memory:bool",
     NO_EFFECT, IN_CPU_MEMORY},
    {"zero_optimization", "mics_shard_size:integer", REFUSED, "MiCS is not served", "-1"},
    {"zero_optimization", "zero_hpz_partition_size:integer", REFUSED, "ZeRO++ is not served", "1"},
    {"zero_optimization",
     "mics_hierarchical_params_gather:bool zero_quantized_weights:bool "
     "zero_quantized_nontrainable_weights:bool zero_quantized_gradients:bool "
     "save_muon_momentum_buffer_in_memory:bool",
     REFUSED, "MiCS, ZeRO++ and Muon are not served", "false"},
    {"zero_optimization", "zeropp_loco_param:anything zenflow:anything", REFUSED,
     "LoCo and ZenFlow are not served"},
    {"zero_optimization.leaf_module", "classes:anything names:anything name_suffixes:anything", NO_EFFECT,
     AS_READ},
    {"zero_optimization.offload_optimizer", "device:text nvme_path:text", SERVED,
     "cpu is the host of a model on a GPU, and as none for others; nvme keeps the state and the masters in "
     "files"},
    {"zero_optimization.offload_optimizer",
     "buffer_count:integer pin_memory:bool pipeline:bool "
     "pipeline_read:bool pipeline_write:bool fast_init:bool ratio:number super_offload:bool "
     "cpuadam_cores_perc:number",
     NO_EFFECT, IN_CPU_MEMORY},
    {"zero_optimization.offload_param", "device:text nvme_path:text", SERVED,
     "cpu is the host of a model on a GPU in stage 3, where the state goes, too, and as none for others; "
     "nvme keeps the parameters in a file, in the folder of offload_optimizer"},
    {"zero_optimization.offload_param",
     "buffer_count:integer buffer_size:integer max_in_cpu:integer "
     "pin_memory:bool",
     NO_EFFECT, IN_CPU_MEMORY},
    {"activation_checkpointing",
     "partition_activations:bool cpu_checkpointing:bool contiguous_memory_optimization:bool "
     "number_checkpoints:integer synchronize_checkpoint_boundary:bool profile:bool",
     NO_EFFECT, "the model calls dist::checkpoint() where it wants to (autograd/activation_checkpoint.h)"},
    {"checkpoint", "tag_validation:text", NO_EFFECT, "ranks that give different tags are always an error"},
    {"checkpoint", "load_universal:bool use_node_local_storage:bool writer:anything", NO_EFFECT, ANY_RANKS},
    {"checkpoint", "parallel_write:section", SERVED, "below"},
    {"checkpoint.parallel_write", "pipeline_stage:bool", NO_EFFECT, ANY_RANKS},
    {"data_types", "grad_accum_dtype:text", NO_EFFECT, "gradients accumulate in the type of their parameter"},
    {"aio",
     "block_size:integer queue_depth:integer thread_count:integer intra_op_parallelism:integer "
     "single_submit:bool "
     "overlap_events:bool use_gds:bool",
     NO_EFFECT, "the kernel reads files ahead and writes them behind"},
    {"flops_profiler",
     "enabled:bool profile_step:integer module_depth:integer top_modules:integer detailed:bool "
     "output_file:text recompute_fwd_factor:number",
     NO_EFFECT, OBSERVED},
    {"comms_logger", "enabled:bool verbose:bool prof_all:bool debug:bool prof_ops:anything", NO_EFFECT,
     OBSERVED},
    {"tensorboard", "enabled:bool output_path:text job_name:text", NO_EFFECT, OBSERVED},
    {"csv_monitor", "enabled:bool output_path:text job_name:text", NO_EFFECT, OBSERVED},
    {"wandb", "enabled:bool group:text team:text project:text", NO_EFFECT, OBSERVED},
    {"comet",
     "enabled:bool samples_log_interval:integer project:text workspace:text api_key:text "
     "experiment_name:text "
     "experiment_key:text online:bool mode:text",
     NO_EFFECT, OBSERVED},
    {"timers", "throughput:section", SERVED, "below"},
    {"timers.throughput", "enabled:bool synchronized:bool", NO_EFFECT, OBSERVED},
});

struct TypeName {
  std::string_view in_table;
  KeyType type;
  std::string_view in_words;
};
constexpr std::array TYPES = std::to_array<TypeName>({
    {"bool", KeyType::BOOL, "true or false"},
    {"integer", KeyType::INTEGER, "an integer"},
    {"number", KeyType::NUMBER, "a number"},
    {"text", KeyType::TEXT, "a string"},
    {"numbers", KeyType::NUMBERS, "a list of numbers"},
    {"section", KeyType::SECTION, "an object"},
    {"anything", KeyType::ANYTHING, "any value"},
});

std::vector<ConfigKey> expanded() {
  std::vector<ConfigKey> keys;
  for (const Row& row : ROWS) {
    std::istringstream words{std::string(row.keys)};
    for (std::string word; words >> word;) {
      const auto colon = word.find(':');
      const std::string type = word.substr(colon + 1);
      const auto known =
          std::find_if(TYPES.begin(), TYPES.end(), [&](const TypeName& one) { return one.in_table == type; });
      if (known == TYPES.end()) throw InternalError("the table of DeepSpeed's keys has the type " + type);
      const std::string name = word.substr(0, colon);
      keys.push_back({row.section.empty() ? name : lockstep::str(row.section, '.', name), known->type,
                      row.effect, row.what, row.harmless});
    }
  }
  return keys;
}

}  // namespace

const std::vector<ConfigKey>& config_keys() {
  static const std::vector<ConfigKey> KEYS = expanded();
  return KEYS;
}

const ConfigKey* find_config_key(std::string_view path) {
  const auto& keys = config_keys();
  const auto found =
      std::find_if(keys.begin(), keys.end(), [&](const ConfigKey& key) { return key.path == path; });
  return found == keys.end() ? nullptr : &*found;
}

std::vector<std::string> keys_of_section(std::string_view section) {
  std::vector<std::string> names;
  for (const ConfigKey& key : config_keys()) {
    const auto dot = key.path.rfind('.');
    const bool is_outermost = dot == std::string::npos;
    if (section != (is_outermost ? "" : std::string_view(key.path).substr(0, dot))) continue;
    names.push_back(is_outermost ? key.path : key.path.substr(dot + 1));
  }
  return names;
}

std::string_view to_string(KeyType type) {
  for (const TypeName& one : TYPES) {
    if (one.type == type) return one.in_words;
  }
  return "";
}

std::string config_keys_as_markdown() {
  std::string text =
      "| section | keys | effect | what it does, or why it does nothing |\n| --- | --- | --- | --- |\n";
  for (const Row& row : ROWS) {
    std::string keys;
    std::istringstream words{std::string(row.keys)};
    for (std::string word; words >> word;)
      keys += lockstep::str(keys.empty() ? "`" : ", `", word.substr(0, word.find(':')), '`');
    const std::string_view effect = row.effect == SERVED      ? "served"
                                    : row.effect == NO_EFFECT ? "none"
                                                              : "refused";
    const std::string unless = row.harmless.empty() ? "" : lockstep::str(" (accepted: `", row.harmless, "`)");
    text += lockstep::str("| ", row.section, " | ", keys, " | ", effect, " | ", row.what, unless, " |\n");
  }
  return text;
}

}  // namespace lockstep::compat::deepspeed

#include "lockstep/compat/deepspeed/engine.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>

#include <cmath>

#include "lockstep/amp/grad_scaler.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/checkpoint/load_checkpoint.h"
#include "lockstep/checkpoint/save_checkpoint.h"
#include "lockstep/compat/deepspeed/checkpoint_tags.h"
#include "lockstep/compat/deepspeed/configured_optimizer.h"
#include "lockstep/compat/deepspeed/scheduler.h"
#include "lockstep/job/job.h"
#include "lockstep/optim/clip_grad.h"

namespace lockstep::compat::deepspeed {
namespace {

[[noreturn]] void refuse_in_engine(const std::string& what) {
  throw InvalidArgument("DeepSpeed engine: " + what);
}

ProcessGroup group_of(const InitializeOptions& options) {
  if (options.process_group) {
    options.process_group->require_member("DeepSpeed's initialize()");
    return *options.process_group;
  }
  init_distributed();
  return world();
}

LossScaleOptions scale_options(const PrecisionConfig& precision) {
  return deepspeed_loss_scale({.init_scale = std::ldexp(1.0, static_cast<int>(precision.initial_scale_power)),
                               .growth_interval = precision.loss_scale_window,
                               .hysteresis = static_cast<int>(precision.hysteresis),
                               .consecutive_hysteresis = precision.consecutive_hysteresis,
                               .min_scale = precision.min_loss_scale});
}

std::optional<at::ScalarType> dtype_of(Precision precision) {
  switch (precision) {
    case Precision::FLOAT16: return at::kHalf;
    case Precision::BFLOAT16: return at::kBFloat16;
    case Precision::FLOAT32: return std::nullopt;
  }
  return std::nullopt;
}

std::vector<at::Tensor> tensors_in(const NamedTensors& named) {
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : named) tensors.push_back(tensor);
  return tensors;
}

}  // namespace

void init_distributed(const std::string& dist_backend) {
  if (!is_initialized()) init_process_group(dist_backend);
}

// ---------------------------------------------------------------------------------------------- preparation

EngineBase::EngineBase(Config config, const InitializeOptions& options)
    : config_(std::move(config)), group_(group_of(options)), scale_(scale_options(config_.precision)) {
  batch_ = batch_sizes(config_.batch, group_.size());
  make_ = makers_of(options);
  if (group_.rank() != 0) return;
  for (const std::string& note : config_.notes) log(LogLevel::INFO, "DeepSpeed config: " + note);
  if (options.optimizer.is_given() && config_.optimizer)
    log(LogLevel::INFO, "DeepSpeed engine: the program's optimizer is taken, and not the configuration's");
}

EngineBase::Makers EngineBase::makers_of(const InitializeOptions& options) const {
  if (options.lr_scheduler && config_.scheduler)
    refuse_in_engine("the configuration has a \"scheduler\", and the program has one; give one of them");
  Makers makers{.optimizer = options.optimizer, .lr_scheduler = options.lr_scheduler};
  if (config_.scheduler)
    makers.lr_scheduler = [plan = *config_.scheduler](torch::optim::Optimizer& optimizer) {
      return std::make_unique<Scheduler>(optimizer, plan);
    };
  if (makers.optimizer.is_given()) {
    if (!options.model_parameters.empty())
      refuse_in_engine(
          "model_parameters are groups of the configuration's optimizer; give those of the "
          "program's to client_optimizer()");
    return makers;
  }
  if (!config_.optimizer)
    refuse_in_engine("the configuration needs an \"optimizer\", or the program gives initialize() one");
  std::vector<ShardedGroup<OptimizerConfig>> groups;
  for (const ModelParameters& group : options.model_parameters)
    groups.push_back({group.params, with_options(*config_.optimizer, group.options,
                                                 lockstep::str("model_parameters[", groups.size(), ']'))});
  makers.optimizer = configured_optimizer(*config_.optimizer, groups);
  return makers;
}

void EngineBase::convert(torch::nn::Module& module) const {
  const auto dtype = dtype_of(config_.precision.type);
  if (!dtype) return;
  const at::NoGradGuard no_grad;
  const auto cast = [&](const at::Tensor& tensor) {
    if (tensor.is_floating_point()) tensor.set_data(tensor.to(*dtype));
  };
  for (const at::Tensor& parameter : module.parameters()) cast(parameter);
  for (const at::Tensor& buffer : module.buffers()) cast(buffer);
}

bool EngineBase::uses_replicas() const { return config_.zero_stage == 0; }

ShardedDataParallelOptions EngineBase::sharded_options(const torch::nn::Module& module) const {
  const auto elements = [](std::int64_t count) { return static_cast<std::size_t>(count); };
  ShardedDataParallelOptions options{
      .stage = config_.zero_stage,
      .process_group = group_,
      .master_weights = config_.precision.type != Precision::FLOAT32,
      .param_persistence_threshold = elements(config_.gather.param_persistence_threshold),
      .model_persistence_threshold = elements(config_.gather.model_persistence_threshold),
      .max_live_parameters = elements(config_.gather.max_live_parameters),
      .prefetch_bucket_size = elements(config_.gather.prefetch_bucket_size)};
  if (!config_.offload.nvme_path.empty())
    options.offload =
        OffloadOptions{.folder = config_.offload.nvme_path, .parameters = config_.offload.parameters};
  const std::vector<at::Tensor> parameters = module.parameters();
  const bool is_on_gpu = !parameters.empty() && !parameters.front().is_cpu();
  if (!is_on_gpu) return options;
  if (config_.offload.to_host) options.offload = OffloadOptions{};
  if (config_.offload.parameters_to_host)
    options.offload = OffloadOptions{.folder = config_.offload.nvme_path, .parameters = true};
  return options;
}

void EngineBase::take(torch::nn::Module& module, DistributedDataParallelBase& replicas) {
  wrapped_ = {.module = &module, .replicas = &replicas};
  masters_ = ReplicaMasters(replicas.named_parameters().pairs());
  optimizer_ = make_.optimizer.over(masters_);
  finish_preparing();
}

void EngineBase::take(ShardedDataParallelBase& shards) {
  wrapped_ = {.shards = &shards};
  optimizer_ = make_.optimizer.over(shards);
  finish_preparing();
}

void EngineBase::finish_preparing() {
  if (make_.lr_scheduler) scheduler_ = make_.lr_scheduler(*optimizer_);
}

// ------------------------------------------------------------------------------------------------- the loop

at::Tensor EngineBase::cast_input(const at::Tensor& tensor) const {
  const bool casts = config_.precision.auto_cast && tensor.defined() && tensor.is_floating_point();
  return casts ? tensor.to(at::kHalf) : tensor;
}

bool EngineBase::is_gradient_accumulation_boundary() const {
  return (counters_.micro_steps + 1) % gradient_accumulation_steps() == 0;
}

// Replicas average in the backward pass of the last micro step alone.
void EngineBase::before_forward(bool training) {
  const bool stays_alone = unsynchronized_.is_asked || !is_gradient_accumulation_boundary();
  if (!training || wrapped_.replicas == nullptr || !stays_alone || unsynchronized_.guard) return;
  unsynchronized_.guard.emplace(wrapped_.replicas->no_sync());
}

at::Tensor EngineBase::backward(const at::Tensor& loss, const BackwardOptions& options) {
  const std::int64_t parts = options.scale_wrt_gas ? gradient_accumulation_steps() : 1;
  const at::Tensor mean = parts == 1 ? loss : loss / static_cast<double>(parts);
  // The factor is a tensor, not a number: it makes a float16 loss float32.
  const at::Tensor scaled =
      loss_scale() == 1
          ? mean
          : mean.mul(at::full({}, loss_scale(), mean.options().dtype(at::kFloat).requires_grad(false)));
  scaled.backward({}, options.retain_graph);
  return mean;
}

void EngineBase::step() {
  if (unsynchronized_.is_asked) refuse_in_engine("step() inside of no_sync(): end the guard before");
  last_ = {};
  unsynchronized_.guard.reset();
  if (is_gradient_accumulation_boundary()) take_step();
  ++counters_.micro_steps;
}

// Whether the gradients are finite on all ranks; they are the averages of unscaled losses then.
bool EngineBase::unscale() {
  masters_.take_gradients();
  if (!config_.precision.check_overflow) return true;
  const auto found = unscale_gradients(*optimizer_, 1 / loss_scale(), /*allow_half=*/true);
  const auto first = first_of_all_ranks(found, group_, loss_scale());
  if (first && group_.rank() == 0)
    log(LogLevel::INFO,
        lockstep::str("DeepSpeed engine: ", parameter_name(*optimizer_, first->index, masters_.trained()),
                      " overflowed on rank ", first->rank, " at loss scale ", loss_scale(), "; step ",
                      counters_.global_steps + 1, " is skipped"));
  return !first;
}

double EngineBase::clip() {
  const double most = config_.gradient_clipping;
  if (wrapped_.shards != nullptr) return wrapped_.shards->clip_grad_norm_(most);
  return clip_grad_norm_(tensors_in(masters_.trained()), most);
}

void EngineBase::take_step() {
  const bool is_finite = unscale();
  if (is_finite) {
    if (config_.gradient_clipping > 0) last_.grad_norm = clip();
    optimizer_->step();
    masters_.round();
    if (scheduler_ != nullptr) scheduler_->step();
  }
  zero_grad();
  last_.is_applied = is_finite;
  ++counters_.global_steps;
  if (!is_finite) ++counters_.skipped_steps;
  log_step();
  if (is_dynamic()) scale_.update(!is_finite);
}

void EngineBase::log_step() const {
  if (config_.steps_per_print == 0 || counters_.global_steps % config_.steps_per_print != 0) return;
  if (group_.rank() != 0) return;
  std::string rates;
  for (const double lr : get_lr()) rates += lockstep::str(rates.empty() ? "" : ", ", lr);
  log(LogLevel::INFO,
      lockstep::str("DeepSpeed engine: step=", counters_.global_steps, ", skipped=", counters_.skipped_steps,
                    ", lr=[", rates, "], loss scale=", loss_scale()));
}

void EngineBase::zero_grad() {
  if (wrapped_.shards != nullptr) {
    wrapped_.shards->zero_grad();
    return;
  }
  wrapped_.replicas->zero_grad();
  optimizer_->zero_grad();
}

EngineBase::NoSync::NoSync(EngineBase& engine) : engine_(engine) {
  if (engine.config_.zero_stage >= 2)
    refuse_in_engine(lockstep::str("no_sync() is not possible at ZeRO stage ", engine.config_.zero_stage,
                                   ", whose gradients are never whole on a rank"));
  if (engine.unsynchronized_.is_asked) refuse_in_engine("no_sync() inside of no_sync()");
  engine.unsynchronized_.is_asked = true;
}

EngineBase::NoSync::~NoSync() {
  engine_.unsynchronized_.is_asked = false;
  engine_.unsynchronized_.guard.reset();
}

// -------------------------------------------------------------------------------------------------- numbers

double EngineBase::loss_scale() const { return is_dynamic() ? scale_.value() : config_.precision.loss_scale; }

std::vector<double> EngineBase::get_lr() const {
  std::vector<double> rates;
  for (const auto& group : optimizer_->param_groups()) rates.push_back(group.options().get_lr());
  return rates;
}

void EngineBase::set_lr(double lr) {
  for (auto& group : optimizer_->param_groups()) group.options().set_lr(lr);
}

int EngineBase::local_rank() const { return get_local_rank(); }

// ---------------------------------------------------------------------------------------------- checkpoints

nlohmann::json EngineBase::numbers() const {
  return {{"global_steps", counters_.global_steps},
          {"skipped_steps", counters_.skipped_steps},
          {"loss_scale", scale_.value()},
          {"clean_steps", scale_.growth_tracker()},
          {"hysteresis", scale_.hysteresis_left()}};
}

void EngineBase::set_numbers(const nlohmann::json& numbers) {
  counters_.global_steps = numbers.at("global_steps").get<std::int64_t>();
  counters_.skipped_steps = numbers.at("skipped_steps").get<std::int64_t>();
  counters_.micro_steps = counters_.global_steps * gradient_accumulation_steps();
  scale_.set(numbers.at("loss_scale").get<double>());
  scale_.set_trackers(numbers.at("clean_steps").get<std::int64_t>(), numbers.at("hysteresis").get<int>());
}

CheckpointState EngineBase::checkpoint_state(nlohmann::json& client_state, const EngineLoadOptions& options) {
  CheckpointState state;
  if (wrapped_.shards != nullptr) {
    state.add("module", *wrapped_.shards);
  } else {
    state.add("module", *wrapped_.module);
  }
  state.add_value("client_state", client_state);
  if (options.load_module_only) return state;
  state.add_item("engine",
                 std::make_shared<ValueItem>([this] { return numbers(); },
                                             [this](const nlohmann::json& loaded) { set_numbers(loaded); },
                                             /*of_each_rank=*/false));
  if (scheduler_ != nullptr && options.load_lr_scheduler_states) state.add("lr_scheduler", *scheduler_);
  if (!options.load_optimizer_states) return state;
  if (wrapped_.shards != nullptr) {
    state.add("optimizer", *optimizer_);
  } else {
    state.add_item("optimizer",
                   std::make_shared<StateDictItem>(
                       [this] { return masters_.state_of(*optimizer_); },
                       [this](const NamedTensors& loaded) { masters_.load(*optimizer_, loaded); }));
  }
  return state;
}

std::string EngineBase::save_checkpoint(const std::string& folder, const EngineSaveOptions& options) {
  const std::string tag =
      options.tag.empty() ? lockstep::str("global_step", counters_.global_steps) : options.tag;
  require_same_tag(group_, tag);
  nlohmann::json client_state = options.client_state;
  CheckpointState state = checkpoint_state(client_state, {});
  const std::string path = lockstep::save_checkpoint(
      folder + "/" + tag, state, {.step = counters_.global_steps, .keep_last = 1, .process_group = group_});
  if (options.save_latest) write_latest(folder, tag, group_);
  return path;
}

std::optional<EngineLoaded> EngineBase::load_checkpoint(const std::string& folder,
                                                        const EngineLoadOptions& options) {
  std::string tag = options.tag;
  if (tag.empty()) {
    const auto latest = read_latest(folder, group_);
    if (!latest) {
      if (group_.rank() == 0)
        log(LogLevel::WARNING,
            lockstep::str("DeepSpeed engine: ", folder, "/latest is not there, so nothing is loaded"));
      return std::nullopt;
    }
    tag = *latest;
  }
  require_same_tag(group_, tag);
  EngineLoaded loaded;
  CheckpointState state = checkpoint_state(loaded.client_state, options);
  const bool takes_all = options.load_module_strict && options.load_optimizer_states &&
                         options.load_lr_scheduler_states && !options.load_module_only;
  loaded.path =
      lockstep::load_checkpoint(folder + "/" + tag, state, {.strict = takes_all, .process_group = group_})
          ->path;
  if (options.load_module_only || !options.load_optimizer_states) masters_.follow();
  zero_grad();
  last_ = {};
  return loaded;
}

}  // namespace lockstep::compat::deepspeed

// DeepSpeed's engine: initialize() makes one of a model and a configuration, and it is all that the training
// loop calls. The model's forward() keeps its types.
//
//   namespace deepspeed = lockstep::compat::deepspeed;
//   auto [engine, optimizer, lr_scheduler] =
//       deepspeed::initialize(net, deepspeed::read_config("ds_config.json"));
//   auto loader = engine.deepspeed_io(train);           // of engine.train_micro_batch_size_per_gpu() samples
//   for (auto& batch : loader) {
//     const at::Tensor loss = cross_entropy(engine(batch.data), batch.target);
//     engine.backward(loss);
//     engine.step();                                    // steps every gradient_accumulation_steps() calls
//   }
//   engine.save_checkpoint("checkpoints");
//
// To go on from there, with what the program added:
//
//   engine.save_checkpoint("checkpoints", {.client_state = {{"epoch", epoch}}});
//   if (const auto loaded = engine.load_checkpoint("checkpoints")) epoch = loaded->client_state["epoch"];
//
// Parameters with options of their own, as in DeepSpeed's model_parameters; here biases do not decay:
//
//   namespace deepspeed = lockstep::compat::deepspeed;
//   auto [grouped, own_optimizer, own_scheduler] = deepspeed::initialize(
//       net, deepspeed::read_config("ds_config.json"),
//       {.model_parameters = {{.params = {fc1->bias, fc2->bias}, .options = {{"weight_decay", 0}}}}});
//
// Stages       0: DistributedDataParallel. 1, 2 and 3: ShardedDataParallel with that stage. Limits are
//              theirs; at stage 3 over messages every read of a parameter is collective, also in an
//              evaluation. The model is wrapped by the engine: give it the bare one.
// backward()   of the loss, divided by gradient_accumulation_steps and multiplied by the loss scale. Returns
//              the loss after that division, without the scale.
// step()       counts a micro step. At the last one of an accumulation it unscales, asks all ranks whether a
//              gradient overflowed, clips, steps optimiser and scheduler, and drops the gradients. After an
//              overflow neither steps; global_steps() counts all the same. Elsewhere it does nothing.
// Precision    fp16 and bf16 turn the model's parameters and buffers into that type; the optimiser steps
//              float32 masters. With bf16 a step that is not finite is skipped, too, unless
//              check_grad_overflow is false. The scale moves as DynamicLossScaler's at every stage
//              (amp/loss_scale.h); an overflow at min_loss_scale is an InvalidArgument on all ranks.
// Clipping     by max / (norm + 1e-6) where that is below 1. get_global_grad_norm() is the norm from before,
//              of the unscaled averages; nothing without gradient_clipping or after an overflow.
// no_sync()    until the guard goes, backward() reduces nothing. InvalidArgument: at stages 2 and 3, inside
//              of another, and for step() inside. The engine stays where it is meanwhile.
// Checkpoints  DIR/TAG holds the run as save_checkpoint() of checkpoint/ writes it, DIR/latest the newest
//              tag. Any number of ranks and any stage loads what any other saved. Gradients of an unfinished
//              accumulation and random numbers are not in it. Python reads it (docs/checkpoints.md).
// Collective   initialize(), step() at a boundary, backward() at stage 0 at a boundary, save_checkpoint() and
//              load_checkpoint(): every rank calls them.
// Optimizer    the configuration's, over model_parameters and all else that is trained; or the program's
//              (client_optimizer.h), which comes before the configuration's. The scheduler is the
//              configuration's or the program's.
// Data         deepspeed_io() makes a loader of this rank's batches (data_loader.h). Any other loader serves.
// Differs      Parameters that model_parameters does not name are trained, too. initialize() takes no
//              training_data and returns no loader: call deepspeed_io(). At stage 0 a parameter without a
//              gradient is an error (parallel/ddp). engine.steps are logged, not printed. What else:
//              docs/deepspeed.md.
// Fails        InvalidArgument: what is named above, and batch sizes that contradict each other (config.h).
//              All else as the wrappers.
// Source       deepspeed/runtime/engine.py.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/amp/loss_scale.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/compat/deepspeed/client_optimizer.h"
#include "lockstep/compat/deepspeed/config.h"
#include "lockstep/compat/deepspeed/data_loader.h"
#include "lockstep/compat/deepspeed/replica_masters.h"
#include "lockstep/compat/deepspeed/scheduler.h"
#include "lockstep/parallel/ddp/distributed_data_parallel.h"
#include "lockstep/parallel/zero/sharded_data_parallel.h"

namespace lockstep {
class CheckpointState;
}

namespace lockstep::compat::deepspeed {

// init_process_group(), unless there is a group already. initialize() calls it. DeepSpeed takes "nccl" by
// itself where there are GPUs; here the program names it, and moves its model to the GPU.
void init_distributed(const std::string& dist_backend = "auto");

// A parameter group of the configuration's optimiser: keys of "optimizer.params" that are the group's own.
struct ModelParameters {
  std::vector<at::Tensor> params;
  nlohmann::json options = nlohmann::json::object();
};

// Makes a scheduler for the engine's optimiser.
using MakeLRScheduler = std::function<std::unique_ptr<optim::LRScheduler>(torch::optim::Optimizer&)>;

struct InitializeOptions {
  std::optional<ProcessGroup> process_group = {};  // default: world()
  std::vector<ModelParameters> model_parameters = {};
  ClientOptimizer optimizer = {};     // default: the configuration's
  MakeLRScheduler lr_scheduler = {};  // default: the configuration's, or none
};

struct BackwardOptions {
  bool retain_graph = false;
  bool scale_wrt_gas = true;  // divides by gradient_accumulation_steps
};

struct EngineSaveOptions {
  std::string tag = {};                                    // default: "global_step" and the number
  nlohmann::json client_state = nlohmann::json::object();  // the same on all ranks
  bool save_latest = true;
};

struct EngineLoadOptions {
  std::string tag = {};  // default: what `latest` says
  bool load_module_strict = true;
  bool load_optimizer_states = true;
  bool load_lr_scheduler_states = true;
  bool load_module_only = false;  // neither of those two, nor the counters
};

struct EngineLoaded {
  std::string path;
  nlohmann::json client_state;
};

// What engines of all models have in common.
class EngineBase {
 public:
  class NoSync {
   public:
    explicit NoSync(EngineBase& engine);
    ~NoSync();
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    EngineBase& engine_;
  };

  at::Tensor backward(const at::Tensor& loss, const BackwardOptions& options = {});
  void step();
  bool is_gradient_accumulation_boundary() const;  // of the micro step that is next
  [[nodiscard]] NoSync no_sync() { return NoSync(*this); }
  void zero_grad();

  template <typename Data>
  requires Dataset<std::remove_reference_t<Data>> EngineDataLoader<Data> deepspeed_io(
      Data&& dataset, const DeepSpeedIoOptions& options = {})
  const {
    return EngineDataLoader<Data>(
        std::forward<Data>(dataset),
        {.num_replicas = group_.size(),
         .rank = group_.rank(),
         .shuffle = options.shuffle,
         .seed = options.seed},
        {.batch_size = options.batch_size.value_or(train_micro_batch_size_per_gpu()),
         .workers = options.num_local_io_workers,
         .drop_last = config_.dataloader_drop_last,
         .pin_memory = options.pin_memory});
  }

  std::int64_t train_batch_size() const { return *batch_.train; }
  std::int64_t train_micro_batch_size_per_gpu() const { return *batch_.micro; }
  std::int64_t gradient_accumulation_steps() const { return *batch_.accumulation; }
  int zero_optimization_stage() const { return config_.zero_stage; }
  std::int64_t global_steps() const { return counters_.global_steps; }  // skipped ones, too
  std::int64_t skipped_steps() const { return counters_.skipped_steps; }
  std::int64_t micro_steps() const { return counters_.micro_steps; }
  std::int64_t global_samples() const { return counters_.global_steps * train_batch_size(); }
  bool was_step_applied() const { return last_.is_applied; }  // by the last step()
  std::optional<double> get_global_grad_norm() const { return last_.grad_norm; }
  double loss_scale() const;
  std::vector<double> get_lr() const;  // of each parameter group
  void set_lr(double lr);
  int local_rank() const;
  const Config& config() const { return config_; }
  const ProcessGroup& process_group() const { return group_; }
  torch::optim::Optimizer& optimizer() { return *optimizer_; }
  optim::LRScheduler* lr_scheduler() { return scheduler_.get(); }  // null: none was configured

  // Returns the checkpoint's path.
  std::string save_checkpoint(const std::string& folder, const EngineSaveOptions& options = {});
  // Nothing where the folder has no `latest` and no tag is given, which is logged.
  std::optional<EngineLoaded> load_checkpoint(const std::string& folder,
                                              const EngineLoadOptions& options = {});

 protected:
  EngineBase(Config config, const InitializeOptions& options);
  EngineBase(EngineBase&&) = default;
  EngineBase& operator=(EngineBase&&) = delete;
  ~EngineBase() = default;

  // In this order: the module before it is wrapped, then its wrapper, which stays where it is.
  void convert(torch::nn::Module& module) const;
  void take(torch::nn::Module& module, DistributedDataParallelBase& replicas);
  void take(ShardedDataParallelBase& shards);
  bool uses_replicas() const;  // DistributedDataParallel, and not ShardedDataParallel
  ShardedDataParallelOptions sharded_options(const torch::nn::Module& module) const;
  void before_forward(bool training);
  template <typename Argument> decltype(auto) input(Argument&& argument) const {
    if constexpr (std::same_as<std::remove_cvref_t<Argument>, at::Tensor>) {
      return cast_input(argument);
    } else {
      return std::forward<Argument>(argument);
    }
  }

 private:
  struct Counters {
    std::int64_t micro_steps = 0;
    std::int64_t global_steps = 0;
    std::int64_t skipped_steps = 0;
  };
  struct LastStep {
    bool is_applied = false;
    std::optional<double> grad_norm = {};
  };
  struct Unsynchronized {
    std::optional<DistributedDataParallelBase::NoSync> guard;  // of the replicas, from forward() to step()
    bool is_asked = false;                                     // by no_sync()
  };
  struct Makers {
    ClientOptimizer optimizer;
    MakeLRScheduler lr_scheduler;
  };
  struct Wrapped {
    torch::nn::Module* module = nullptr;              // of the replicas
    DistributedDataParallelBase* replicas = nullptr;  // stage 0
    ShardedDataParallelBase* shards = nullptr;        // stages 1 to 3
  };

  Makers makers_of(const InitializeOptions& options) const;
  at::Tensor cast_input(const at::Tensor& tensor) const;
  void finish_preparing();
  bool is_dynamic() const { return config_.precision.loss_scale == 0; }
  bool unscale();
  double clip();
  void take_step();
  void log_step() const;
  nlohmann::json numbers() const;
  void set_numbers(const nlohmann::json& numbers);
  CheckpointState checkpoint_state(nlohmann::json& client_state, const EngineLoadOptions& options);

  Config config_;
  Makers make_;
  BatchSizes batch_;
  ProcessGroup group_;
  Wrapped wrapped_;
  ReplicaMasters masters_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::unique_ptr<optim::LRScheduler> scheduler_;
  LossScale scale_;
  Counters counters_;
  LastStep last_;
  Unsynchronized unsynchronized_;
};

template <typename ModuleType> class Engine : public EngineBase {
 public:
  Engine(std::shared_ptr<ModuleType> module, Config config, const InitializeOptions& options)
      : EngineBase(std::move(config), options), module_(std::move(module)) {
    convert(*module_);
    if (uses_replicas()) {
      replicas_ = std::make_unique<DistributedDataParallel<ModuleType>>(
          module_, DistributedDataParallelOptions{.process_group = process_group()});
      take(*module_, *replicas_);
    } else {
      shards_ = std::make_unique<ShardedDataParallel<ModuleType>>(module_, sharded_options(*module_));
      take(*shards_);
    }
  }

  template <typename... Arguments> decltype(auto) forward(Arguments&&... arguments) {
    before_forward(module_->is_training());
    if (replicas_ != nullptr) return replicas_->forward(input(std::forward<Arguments>(arguments))...);
    return shards_->forward(input(std::forward<Arguments>(arguments))...);
  }
  template <typename... Arguments> decltype(auto) operator()(Arguments&&... arguments) {
    return forward(std::forward<Arguments>(arguments)...);
  }
  // engine->forward(x) is engine.forward(x): code written for a ModuleHolder keeps working.
  Engine* operator->() { return this; }
  const std::shared_ptr<ModuleType>& module() const { return module_; }
  void train(bool on = true) { module_->train(on); }
  void eval() { train(false); }

 private:
  std::shared_ptr<ModuleType> module_;
  std::unique_ptr<DistributedDataParallel<ModuleType>> replicas_;
  std::unique_ptr<ShardedDataParallel<ModuleType>> shards_;
};

template <typename ModuleType> struct Initialized {
  Engine<ModuleType> engine;
  torch::optim::Optimizer& optimizer;  // the engine's own
  optim::LRScheduler* lr_scheduler;    // the engine's own, or null
};

template <typename ModuleType>
Initialized<ModuleType> initialize(std::shared_ptr<ModuleType> module, Config config,
                                   const InitializeOptions& options = {}) {
  Engine<ModuleType> engine(std::move(module), std::move(config), options);
  torch::optim::Optimizer& optimizer = engine.optimizer();
  optim::LRScheduler* const scheduler = engine.lr_scheduler();
  return {std::move(engine), optimizer, scheduler};
}
template <typename ModuleType>
Initialized<ModuleType> initialize(const torch::nn::ModuleHolder<ModuleType>& module, Config config,
                                   const InitializeOptions& options = {}) {
  return initialize(module.ptr(), std::move(config), options);
}

}  // namespace lockstep::compat::deepspeed

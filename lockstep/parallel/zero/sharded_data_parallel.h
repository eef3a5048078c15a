// ShardedDataParallel: data parallelism in which each rank keeps the optimiser state of its part of the model
// and steps that part alone (ZeRO). Where the ranks have memory in common there is one copy of the parameters
// for all of them: a rank averages its part of the gradients, steps it and writes it, in one pass over
// memory, and nothing is gathered.
//
//   SimpleCNN net;
//   dist::ShardedDataParallel model(net);
//   auto optimizer = model.optimizer<dist::optim::AdamW>(dist::optim::AdamWOptions(3e-4));
//   for (auto& batch : loader) {
//     auto loss = torch::nn::functional::cross_entropy(model->forward(batch.data), batch.target);
//     loss.backward();
//     model.clip_grad_norm_(1.0);     // optional
//     optimizer.step();               // all ranks meet here
//   }
//
// Parameter groups, with options of their own; the last one takes what no other names:
//
//   auto optimizer = model.optimizer<dist::optim::AdamW>(
//       {{{fc->bias}, dist::optim::AdamWOptions(3e-4).weight_decay(0)}},
//       dist::optim::AdamWOptions(3e-4));
//
// The bits     after each step are those of DistributedDataParallel with the same optimiser, for any number
//              of ranks: SGD, Adam, AdamW, LARS, LAMB, and libtorch's optimisers that step each element by
//              itself. So are the bits of clip_grad_norm_().
// Collective   construction; forward in training mode, if there are buffers and broadcast_buffers is set;
//              optimizer.step(), clip_grad_norm_(), GradScaler's unscale_() of the optimiser,
//              write_parameters() and load_state_dict(). backward() never communicates, so a rank that is
//              late in it stalls nobody before the step; but see "Stage 2" and "Stage 3".
// Checkpoints  state.add("model", model).add("optimizer", optimizer): each rank writes its parts. Names and
//              shapes are those of a model with DistributedDataParallel, so either loads the other's, and any
//              number of ranks does (sharded_state.h). An optimiser of libtorch cannot be saved.
// Memory       a rank, of P bytes of parameters and an optimiser with K bytes for each byte of them, N ranks
//              of a machine: P / N for the one copy, P for this rank's gradients, K P / N for the state. In
//              stage 2 P / N for gradients, and two buckets of them that are on their way. Of several
//              machines with R ranks each, parameters are P / R. Without memory in common they are P. In
//              stage 3 they are the rank's part of P, max_live_parameters and what stays, these two divided
//              by R on several machines. memory() says it. Each rank has all parameters until the wrapper is
//              made, unless meta_init() made the model.
// Gradients    of this rank's backward passes are added up in .grad, until the step averages them: several
//              backward() calls before a step are accumulation, and need no guard. After step(), and after
//              clip_grad_norm_() or unscale_(), .grad is undefined: the averages lie in the optimiser's
//              shards, each rank's part on that rank. A look at the average: average_gradients().
// Stage 2      {.stage = 2}: a rank keeps its parts of the gradients alone. They are averaged while backward
//              runs, bucket by bucket, so backward() is collective and .grad is undefined after it. The bits
//              of a step of one backward() are those of stage 1. Several before a step each average, with the
//              traffic of a step, and add averages: that differs from the average of sums by rounding. All
//              ranks run as many before a step; a rank that ran none takes part with zeros. Not possible: to
//              change .grad between backward() and step(); a parameter that gets several gradients in one
//              backward(), as in several checkpointed blocks; a forward after a backward() that an exception
//              ended. zero_grad() of the wrapped module drops nothing: the wrapper's does. Where ranks share
//              memory it costs a pass over the gradients that stage 1 does not need.
// Stage 3      as stage 2, and a rank keeps its parts of the parameters alone: {.stage = 3}. Parameters that
//              are registered one after another make units of unit_mb; those of at most
//              param_persistence_threshold elements stay. A unit is gathered before an operator of libtorch
//              reads a parameter of it, in forward and in backward; the next ones in the order of the last
//              step are gathered meanwhile; and the one that was used longest ago goes when there are
//              max_live_parameters. So every read is collective, also that of a forward without gradients:
//              all ranks take the same path through the model, or the first that differs is a Mismatch, and a
//              rank alone is told that the others do something else, or have left. A parameter's own
//              data_ptr() is good within its operator alone, and torch::save() of the model only within
//              read_parameters(): memory that is gone is a fault (SIGSEGV), never zeros. What cannot be
//              gathered is NaN for the operator, and forward(), backward() or step() throws why. After a
//              death the parts of the dead rank are lost: load a checkpoint. Frozen parameters and buffers
//              stay whole. Where ranks share memory stage 3 is stage 2: the one copy is P / N a rank.
// Unused       a parameter that got no gradient on some ranks counts as zero there. One that got none on any
//              rank is not stepped, as with DistributedDataParallel's find_unused_parameters.
// Optimiser    one per wrapper. Lockstep's own; libtorch's, and any other torch::optim::Optimizer that has a
//              constructor of parameter groups and options, if it steps each element by itself: a rank's
//              parameters are flat parts. SGD, Adam and AdamW of Lockstep average in the pass that steps;
//              the others average first.
// Skipped      steps. If an exception ends a step on one rank alone and the rank goes on, it is a step behind
//              the others. So each rank counts the forwards in training that an exception left before the end
//              of their backward (parallel/replicas/left_forwards.h says which it sees). The next step,
//              clip_grad_norm_() or unscale_() compares the counts, and is a Mismatch on all ranks if they
//              differ; the parameters stay. A forward that may be tried again is the module's own,
//              model.module()->forward(x), which is not counted.
// Writing      to parameters from outside of the optimiser: write_parameters([&] { ... }) lets rank 0 do it
//              for all. An in-place write of every rank would be made once per rank on the one copy, so the
//              next forward refuses it by name, and likewise a parameter whose memory was replaced:
//              torch::load(), to(), set_data().
// Masters      master_weights = true: the optimiser of a model of 16 bits (`net->to(torch::kBFloat16)` before
//              it is wrapped) steps float32 masters. Gradients are averaged in 16 bits and widened then, so
//              clipping, unscale_() and the step are float32. The optimiser's checkpoint has the masters, as
//              "state.NAME.master_weight". For float16 take a GradScaler (amp/grad_scaler.h).
// Offload      offload = OffloadOptions{"/nvme/scratch"}: the optimiser's state and the masters lie in a
//              file of each rank, through which a step goes once, reading ahead and writing behind
//              (os/file_memory.h); with .parameters = true the parameters lie in one, too. The bits are the
//              same. For optimisers of Lockstep. Without memory in common that file has all parameters, on
//              each rank, also in stage 3.
// Graphs       that were recorded before a step cannot run backward after it: libtorch's own error says that
//              a variable was modified. Nor can a backward create a graph of the gradients.
// Groups       `shm`, and `thread` within a process, have memory in common. Of several machines with equally
//              many ranks (`hierarchical`) the ranks of each have a copy of the parameters in common, in
//              stage 3 what is gathered; over tcp, mpi and gloo each rank has its own. There gradients are
//              reduced and parameters gathered by messages, and the results are the same.
// Fails        InvalidArgument: no parameter that requires a gradient; one that is not float32, float64,
//              float16 or bfloat16, not dense, or on a device that the group does not serve; one that another
//              live wrapper has, too; what "Writing" and "Graphs" name; a second optimiser. Mismatch: models
//              differ, or ranks call different things. PeerLost, Timeout, Aborted: as any collective. A
//              failure before the ranks write leaves the parameters as the last step made them; one while
//              they write leaves a torn step, which is logged, and is_torn() tells; likewise within
//              write_parameters(). It speaks of what this rank has: over messages another rank may have
//              stepped its part where this one had not begun. A checkpoint that was not loaded to its end
//              leaves values of both.
// GPUs         a model on this rank's GPU, over `nccl`: each rank has its own copy of the parameters, or in
//              stage 3 its part. Bits of sums are NCCL's. The host waits for no other rank's part, so a rank
//              that dies late in a step is named by the next call, and is_torn() may not tell. In stage 3
//              data_ptr() of a parameter that is gone throws c10::Error, and operators that read parameters
//              run on one stream. offload = OffloadOptions{}: the optimiser's state, and a copy of what the
//              rank steps, lie in pinned memory of the host, and its cores step them; with a folder they lie
//              in a file. With .parameters = true, in stage 3, a rank's part lies there itself. device =
//              torch::kCUDA takes a model to the GPU as it is wrapped, so that in stage 3 one that
//              meta_init() made is whole nowhere.
// Limits       dense gradients; no Join, no communication hooks, no virtual ranks.
// Lifetime     the model lives at least as long as the wrapper; the optimiser may outlive it. Neither
//              destructor communicates.
// Source       Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models",
//              SC 2020, sections 5.1 to 5.3.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/ordered_dict.h>

#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/parallel/replicas/forward_outputs.h"
#include "lockstep/parallel/replicas/left_forwards.h"
#include "lockstep/parallel/replicas/model_watch.h"
#include "lockstep/parallel/zero/sharded_optimizer.h"
#include "lockstep/parallel/zero/sharded_options.h"
#include "lockstep/tensor/named_tensors.h"

namespace lockstep {

// Bytes that this rank accounts for: an N-th of what N ranks share.
struct ShardedMemory {
  double parameters = 0;
  double gradients = 0;
  double masters = 0;      // float32, of this rank's part
  bool is_shared = false;  // one copy of the parameters for the ranks of this machine
};

class ShardedDataParallelBase : public HasCheckpointItem {
 public:
  // Once. Its parameters are this rank's shards. Every rank makes the same one.
  template <std::derived_from<torch::optim::Optimizer> Base, typename Options>
  ShardedOptimizer<Base> optimizer(const std::vector<ShardedGroup<Options>>& groups,
                                   const Options& defaults) {
    std::vector<std::vector<at::Tensor>> named;
    std::vector<Options> options;
    for (const ShardedGroup<Options>& group : groups) {
      named.push_back(group.parameters);
      options.push_back(group.options);
    }
    options.push_back(defaults);
    return ShardedOptimizer<Base>(step_, group_, take_shards(named), options, defaults);
  }
  template <std::derived_from<torch::optim::Optimizer> Base, typename Options>
  ShardedOptimizer<Base> optimizer(const Options& options) {
    return optimizer<Base, Options>(std::vector<ShardedGroup<Options>>(), options);
  }

  // Scales the average gradients to a norm of at most `max_norm`, as dist::clip_grad_norm_
  // (optim/clip_grad.h) does after DistributedDataParallel. Returns the norm from before. Collective.
  double clip_grad_norm_(double max_norm, double norm_type = 2.0,  // NOLINT(readability-identifier-naming)
                         bool error_if_nonfinite = false);
  // For norms over more ranks than these (model_parallel/gradient_norm.h): the sum of squares of each
  // parameter's average, equal on all ranks of the group, by name. Collective.
  std::vector<std::pair<std::string, double>> square_norms();
  // Multiplies the averages, after clip_grad_norm_() or square_norms().
  void scale_gradients(double factor) { step_->scale(factor); }
  // The averages over the ranks, whole, by parameter; undefined where no rank has a gradient. A copy, for who
  // wants to look. Collective.
  NamedTensors average_gradients();
  // As a model's own: drops what backward passes have added up.
  void zero_grad();

  // Rank 0 calls `write`, without autograd, and all ranks have what it wrote. Collective.
  void write_parameters(const std::function<void()>& write);
  // Every rank calls `read`, within which all parameters are there in stage 3 (DeepSpeed's
  // GatheredParameters), also for torch::save() and data_ptr(). Collective in stage 3.
  void read_parameters(const std::function<void()>& read);
  // Parameters and buffers by their names in the model; the tensors themselves, no copies. In stage 3 over
  // messages copies, and collective.
  torch::OrderedDict<std::string, at::Tensor> state_dict() const;
  // Copies values into the model. Every rank calls it with the same values; rank 0's count for parameters.
  // Throws InvalidArgument before anything is copied: names missing or unknown, shapes that differ.
  void load_state_dict(const torch::OrderedDict<std::string, at::Tensor>& state);
  // For CheckpointState::add(): parameters and buffers, as of a module.
  std::shared_ptr<CheckpointItem> checkpoint_item() override;

  // In the order of registration; a shared one once.
  std::vector<at::Tensor> parameters() const;
  torch::OrderedDict<std::string, at::Tensor> named_parameters() const;
  const ProcessGroup& process_group() const { return group_; }
  // A rank failed while ranks wrote the parameters: they are those of no step. Otherwise they are whole, also
  // after a failure.
  bool is_torn() const { return step_->stage() == ShardedStep::Stage::TORN; }
  ShardedMemory memory() const;
  // Which rank steps what, one line per rank.
  std::string shard_table() const;

 protected:
  ShardedDataParallelBase(const torch::nn::Module& module, NamedTensors parameters, NamedTensors buffers,
                          const ShardedDataParallelOptions& options);
  void before_forward(bool training);
  void after_forward();
  ShardedStep& step() { return *step_; }
  template <typename Outputs>
  static void watch(const LeftForwards::Attempt& attempt, const Outputs& outputs) {
    OutputTensors found;
    found.visit(outputs);
    attempt.watch(found.tensors);
  }

 private:
  torch::OrderedDict<std::string, at::Tensor> tensors() const;
  zero::GroupedShards take_shards(const std::vector<std::vector<at::Tensor>>& named);

  const ProcessGroup group_;
  const NamedTensors parameters_;  // every name, also several of one tensor
  const NamedTensors buffers_;
  const bool broadcast_buffers_;
  const std::string model_;  // its name, for messages
  NamedTensors trained_;
  ModelWatch watch_;
  std::shared_ptr<ShardedStep> step_;
  bool has_optimizer_ = false;
};

template <typename ModuleType> class ShardedDataParallel : public ShardedDataParallelBase {
 public:
  using Options = ShardedDataParallelOptions;

  explicit ShardedDataParallel(std::shared_ptr<ModuleType> module, const Options& options = {})
      : ShardedDataParallelBase(*module, module->named_parameters().pairs(), module->named_buffers().pairs(),
                                options),
        module_(std::move(module)) {}
  explicit ShardedDataParallel(const torch::nn::ModuleHolder<ModuleType>& module, const Options& options = {})
      : ShardedDataParallel(module.ptr(), options) {}
  // A module that the caller keeps alive.
  explicit ShardedDataParallel(std::type_identity_t<ModuleType>& module, const Options& options = {})
      : ShardedDataParallel(std::shared_ptr<ModuleType>(std::shared_ptr<void>(), &module), options) {}

  template <typename... Arguments> decltype(auto) forward(Arguments&&... arguments) {
    before_forward(module_->is_training());
    using Result = decltype(module_->forward(std::forward<Arguments>(arguments)...));
    std::optional<LeftForwards::Attempt> attempt;
    if (module_->is_training() && at::GradMode::is_enabled()) attempt.emplace(step().left_forwards());
    try {
      if constexpr (std::is_void_v<Result>) {
        module_->forward(std::forward<Arguments>(arguments)...);
        after_forward();
      } else {
        decltype(auto) result = module_->forward(std::forward<Arguments>(arguments)...);
        after_forward();
        if (attempt) watch(*attempt, result);
        return result;
      }
    } catch (...) {
      after_forward();  // may throw the reason
      throw;
    }
  }
  template <typename... Arguments> decltype(auto) operator()(Arguments&&... arguments) {
    return forward(std::forward<Arguments>(arguments)...);
  }

  const std::shared_ptr<ModuleType>& module() const { return module_; }
  // model->forward(x) is model.forward(x): code written for a ModuleHolder keeps working.
  ShardedDataParallel* operator->() { return this; }
  const ShardedDataParallel* operator->() const { return this; }

  void train(bool on = true) { module_->train(on); }
  void eval() { train(false); }
  bool is_training() const { return module_->is_training(); }

 private:
  std::shared_ptr<ModuleType> module_;
};

template <typename ModuleType>
ShardedDataParallel(torch::nn::ModuleHolder<ModuleType>, ShardedDataParallelOptions = {})
    -> ShardedDataParallel<ModuleType>;
template <typename ModuleType>
ShardedDataParallel(std::shared_ptr<ModuleType>, ShardedDataParallelOptions = {})
    -> ShardedDataParallel<ModuleType>;
template <std::derived_from<torch::nn::Module> ModuleType>
ShardedDataParallel(ModuleType&, ShardedDataParallelOptions = {}) -> ShardedDataParallel<ModuleType>;

}  // namespace lockstep

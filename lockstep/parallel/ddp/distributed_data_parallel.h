// DistributedDataParallel: trains one model on several ranks. Each rank runs forward and backward on its own
// share of the batch; gradients are averaged while backward runs, so every rank takes the same optimiser
// step.
//
//   SimpleCNN net;  // a ModuleHolder, a shared_ptr, or a Module
//   dist::DistributedDataParallel ddp(net, {.bucket_cap_mb = 25});
//   torch::optim::SGD optimizer(net->parameters(), 0.1);
//   for (auto& batch : loader) {
//     optimizer.zero_grad();
//     auto loss = torch::nn::functional::cross_entropy(ddp->forward(batch.data), batch.target);
//     loss.backward();  // .grad is now the average over all ranks
//     optimizer.step();
//   }
//
// A model that is not a torch::nn::Module is a list of named tensors and any callable as its forward:
//
//   dist::DistributedDataParallel ddp(dist::NamedTensors{{"w", w}, {"b", b}}, /*buffers=*/{});
//   auto loss = ddp.forward([&] { return (x.mm(w) + b - y).pow(2).mean(); });
//
// Several backward passes whose sum makes one step, without communication for all but the last:
//
//   {
//     auto guard = ddp.no_sync();
//     loss_of(ddp->forward(first_half)).backward();
//   }
//   loss_of(ddp->forward(second_half)).backward();                    // averages the sum of both
//
// Collective  construction; forward in training mode, if there are buffers and broadcast_buffers is set;
//             backward, unless under no_sync. Forward in eval mode or without grad mode never communicates:
//             rank 0 may evaluate alone. Every rank runs the same number of backward passes, or joins
//             (job/join.h).
// Construction verifies that every rank wraps the same model (names, shapes, strides, dtypes, options), then
// gives every
//             rank rank 0's parameters and buffers. So initial weights may differ; from then on they are
//             equal, and the very first backward already leaves equal gradients on every rank. (Articles that
//             show different gradients after the first backward look at a rank's own gradient before the
//             average.)
// Gradients   the average over ranks of what each rank's backward gave, bit-identical everywhere. If every
//             rank's loss is the mean over equal shares of a batch, they are those of the mean over the whole
//             batch. .grad lies in a flat bucket in memory shared by the ranks. zero_grad() costs one copy
//             per gradient and step; zero_grad(false) costs none. Accumulation, clipping, several optimisers,
//             hooks on parameters: as without DDP.
// Buckets     hold the gradients in the order in which rank 0's arrived in the first backward that was
//             averaged; until then, and with find_unused_parameters, in reverse order of registration. The
//             order does not show in the bits.
// Unused      a parameter that got no gradient is an InvalidArgument that names it, thrown by that same
//             backward(); its peers get an Aborted that names it and this rank, at their next collective at
//             the latest. With find_unused_parameters it contributes zeros; a parameter that no rank used
//             keeps its .grad as it was. (Not together with checkpointing that runs a backward inside the
//             backward: what the checkpoint hides looks unused; use static_graph.) A backward that reaches no
//             parameter of the model at all cannot be noticed without that option: peers then wait for this
//             rank and say so after 5 s.
// Static      With static_graph each backward that is averaged gives each parameter as many gradients as the
//             first one did on this rank: none, one, or several where checkpointed blocks share it. Nothing
//             is searched, unused parameters are known from the second step on, and checkpointing that runs a
//             backward inside the backward works with all of it (if what forward returns can be looked into:
//             forward_outputs.h). The first backward does not overlap with its communication. One that
//             differs from the first is an InvalidArgument that names the parameter.
// Skipped     steps: an exception that ends a step on one rank alone, between the beginning of forward and
//             backward, would pair this rank's next step with an earlier one of the others. Each rank counts
//             the forwards that an exception left (left_forwards.h says which it sees); the next backward
//             compares the counts and is a Mismatch, on all ranks, where they differ. Not counted: forwards
//             in eval mode, without grad mode, under no_sync and in a join. So a forward that may throw and
//             be tried again runs under no_sync, its backward after that.
// Fails       InvalidArgument: no parameter that requires a gradient; backward(create_graph = true); a
//             quantised tensor; a trained one that expand() made; a process outside process_group; two
//             threads in backward of one model. Mismatch: models or options differ. PeerLost, Timeout,
//             Aborted: as any collective, from forward() or backward(), with that type. After an error in
//             backward the gradients are unspecified, and the next forward repeats it.
// Mistakes    The next forward names a parameter whose dtype, shape or device was changed, that was unfrozen,
//             or that was registered in the module or replaced there: wrap again after such a change, ddp =
//             DistributedDataParallel(net). One that was frozen is named by the backward that misses it.
//             check_optimizers() names one that no optimiser steps, check_buffers() a buffer that the model
//             has replaced by another tensor.
// Loading     into the wrapped model is fine: torch::load(net, file), load_state_dict(), to() another type
//             and back. Each rank loads on its own.
// Kept        Who keeps a .grad over zero_grad(), as gradient surgery does, keeps its values: the bucket
//             moves to new memory, the old one stays until the last such .grad goes. A .grad of the program's
//             own that it has another handle of, as a view of one flat tensor of all gradients, stays the
//             tensor it is: the average is copied into it, which costs two copies per step in place of one.
// Several     wrappers may share a parameter (actor and critic with one encoder; an old wrapper and a new
//             one): gradients are those of Python's DDP. A wrapper takes a shared parameter's gradient if its
//             forward ran since its last backward. So either each wrapper's backward() follows its own
//             forward(), or one backward() takes the sum of their losses; else InvalidArgument.
// Sparse      gradients of torch::nn::Embedding and EmbeddingBag with sparse(true), and those named in
//             sparse_gradients, travel as rows, after the last bucket and past a communication hook; .grad is
//             then the coalesced average.
// Virtual     ranks (parallel/virtual_ranks/virtual_ranks.h): forward in training and backward run in a loop
// ranks       over virtual_ranks(), on models in CPU memory and the job's world. The last turn averages, with
//             the bits of a job that has one process for each virtual rank. InvalidArgument names what is not
//             possible with them: static_graph, backward_passes_per_step, sparse gradients, communication
//             hooks, a Join, SyncBatchNorm, parameters that wrappers share.
// On a GPU    the whole model is on this rank's device, and the group is one over nccl (docs/backends.md).
//             Sparse gradients are refused there. Backward returns before the averages are there; a failure
//             after that is thrown by the group's next call, and the gradients have no meaning.
// Lifetime    the model lives at least as long as the wrapper. The destructor does not communicate.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/ordered_dict.h>

#include <concepts>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/job/join.h"
#include "lockstep/parallel/ddp/forward_outputs.h"
#include "lockstep/parallel/ddp/reducer.h"
#include "lockstep/parallel/ddp/stats.h"
#include "lockstep/parallel/gradients/hooks/comm_hook.h"
#include "lockstep/parallel/replicas/buffer_watch.h"
#include "lockstep/parallel/replicas/model_watch.h"

namespace torch::optim {
class Optimizer;
}

namespace lockstep {

class VirtualReplica;

struct DistributedDataParallelOptions {
  bool broadcast_buffers = true;                   // rank 0's buffers to all at each forward in training mode
  std::optional<ProcessGroup> process_group = {};  // default: world()
  std::optional<double> bucket_cap_mb = {};        // MiB; default 25
  bool find_unused_parameters = false;             // some parameters take no part in some iterations
  bool static_graph = false;                       // every backward is like the first one
  std::vector<int> device_ids = {};                // the model's GPU, or none
  // Names of parameters whose gradients are sparse, beside the weights of torch::nn::Embedding(Bag) with
  // sparse(true).
  std::vector<std::string> sparse_gradients = {};
  std::optional<double> first_bucket_mb = {};  // default: 1 if bucket_cap_mb is not set, else the same
  int backward_passes_per_step = 1;            // a gradient may come in any of these; the last one averages
};

// What all forms have in common; made by DistributedDataParallel below.
class DistributedDataParallelBase : public Joinable {
 public:
  ~DistributedDataParallelBase() override = default;

  // Until the guard is destroyed, backward accumulates on this rank alone and forward leaves buffers alone.
  class NoSync {
   public:
    explicit NoSync(std::shared_ptr<Reducer> reducer);
    ~NoSync();
    NoSync(NoSync&&) = default;
    NoSync& operator=(NoSync&&) = delete;

   private:
    std::shared_ptr<Reducer> reducer_;
    bool before_;
  };
  [[nodiscard]] NoSync no_sync() { return NoSync(reducer_); }

  // Throws InvalidArgument that names a trainable parameter that none of these optimisers steps: they were
  // built before the parameter was registered or replaced, or it was forgotten. Not collective.
  template <typename... Optimizers> void check_optimizers(const Optimizers&... optimizers) const {
    refuse_forgotten({static_cast<const torch::optim::Optimizer*>(&optimizers)...});
  }
  // Throws InvalidArgument that names a buffer which the model no longer uses, because it assigned another
  // tensor to the member (running = running + 1): ranks would go on with different ones. After the first
  // forward. Not collective.
  void check_buffers() const;

  // In the order of registration, for optimisers; a shared parameter once (libtorch's own parameters()
  // repeats it).
  std::vector<at::Tensor> parameters() const;
  torch::OrderedDict<std::string, at::Tensor> named_parameters() const;
  torch::OrderedDict<std::string, at::Tensor> named_buffers() const;
  // As a module's and an optimiser's own.
  void zero_grad(bool set_to_none = true);
  // Does nothing where the model is of that device and dtype already, and throws InvalidArgument otherwise:
  // move the model, then wrap it.
  void to(at::Device device, bool /*non_blocking*/ = false) { refuse_move(device, std::nullopt); }
  void to(at::ScalarType dtype, bool /*non_blocking*/ = false) { refuse_move(std::nullopt, dtype); }
  void to(at::Device device, at::ScalarType dtype, bool /*non_blocking*/ = false) {
    refuse_move(device, dtype);
  }
  // Parameters and buffers by their names in the model, without a "module." prefix; the tensors themselves,
  // no copies.
  torch::OrderedDict<std::string, at::Tensor> state_dict() const;
  // Copies values into the model, on this rank only: call it on every rank. Names may carry one "module."
  // prefix, as Python's DDP writes. Throws InvalidArgument before anything is copied: names missing or
  // unknown, shapes that differ.
  void load_state_dict(const torch::OrderedDict<std::string, at::Tensor>& state);

  // What reduces the gradients from now on, in place of a plain average (gradients/hooks/comm_hook.h): a hook
  // of the registry by its name (gradients/hooks/hook_registry.h), an object, or a function with a name of
  // one's own. Collective. Once, before the first backward. Throws InvalidArgument otherwise, or for an
  // unknown name; Mismatch if ranks register different hooks.
  void register_comm_hook(const std::string& name);
  void register_comm_hook(std::shared_ptr<CommHook> hook);
  void register_comm_hook(const std::string& name, FunctionHook::Function function);
  std::shared_ptr<CommHook> comm_hook() const;  // null: none

  // For a Join (job/join.h): dist::join({&ddp}, [&] { ... }). A rank without inputs takes part in the
  // averages with zeros; buffers are those of the largest rank that has inputs; in the end all ranks have
  // parameters and buffers of the largest rank whose loop was the longest. Its gradients are the others'
  // averages meanwhile. What hooks and optimisers remember stays each rank's own.
  std::shared_ptr<JoinHook> join_hook(const JoinOptions& options) override;
  const ProcessGroup& join_process_group() const override { return group_; }

  const ProcessGroup& process_group() const { return group_; }
  DistributedDataParallelStats stats() const;
  // Which gradients travel together and in what order, one line per bucket: "#0 float32 1280 bytes: fc.bias
  // fc.weight".
  std::string bucket_table() const;
  // Collective: the times of every rank's last step, who came last and why (step_times.h; to_string() makes a
  // table of it).
  RankTimes compare_ranks() const;

 protected:
  // `module` is null for a list of tensors.
  DistributedDataParallelBase(const torch::nn::Module* module, NamedTensors parameters, NamedTensors buffers,
                              const DistributedDataParallelOptions& options);
  DistributedDataParallelBase(DistributedDataParallelBase&&) = default;
  DistributedDataParallelBase& operator=(DistributedDataParallelBase&&) = default;

  // Runs a forward with all that DDP does around it, and returns what it returns.
  template <typename Forward> decltype(auto) run_forward(bool training, Forward&& forward) {
    before_forward(training);
    std::optional<LeftForwards::Attempt> attempt;
    if (counts_forwards(training)) attempt.emplace(reducer_->left_forwards());
    if constexpr (std::is_void_v<std::invoke_result_t<Forward>>) {
      forward();
      if (at::GradMode::is_enabled()) reducer_->after_forward();
    } else {
      decltype(auto) outputs = forward();
      if (at::GradMode::is_enabled()) reducer_->after_forward();
      if (at::GradMode::is_enabled() && (attempt || reducer_->wants_outputs())) {
        OutputTensors found;
        found.visit(outputs);
        if (attempt) attempt->watch(found.tensors);
        after_forward(training, found);
      }
      return outputs;
    }
  }

 private:
  void before_forward(bool training);
  void wrap_for_virtual_ranks();
  void give_buffers();
  bool counts_forwards(bool training) const;  // one that an exception leaves is compared with the other ranks
  void refuse_move(const std::optional<at::Device>& device, const std::optional<at::ScalarType>& dtype) const;
  void refuse_forgotten(const std::vector<const torch::optim::Optimizer*>& optimizers) const;
  void after_forward(bool training, const OutputTensors& outputs);

  ProcessGroup group_;
  NamedTensors parameters_;  // every name, also several of one tensor
  NamedTensors buffers_;
  bool broadcast_buffers_;
  std::string model_;  // its name, for messages
  ModelWatch watch_;
  BufferWatch buffer_watch_;
  std::shared_ptr<Reducer> reducer_;
  std::shared_ptr<VirtualReplica> virtual_replica_;  // null: without virtual ranks
};

template <typename ModuleType> class DistributedDataParallel : public DistributedDataParallelBase {
 public:
  using Options = DistributedDataParallelOptions;

  explicit DistributedDataParallel(std::shared_ptr<ModuleType> module, const Options& options = {})
      : DistributedDataParallelBase(module.get(), module->named_parameters().pairs(),
                                    module->named_buffers().pairs(), options),
        module_(std::move(module)) {}
  explicit DistributedDataParallel(const torch::nn::ModuleHolder<ModuleType>& module,
                                   const Options& options = {})
      : DistributedDataParallel(module.ptr(), options) {}
  // A module that the caller keeps alive.
  explicit DistributedDataParallel(std::type_identity_t<ModuleType>& module, const Options& options = {})
      : DistributedDataParallel(std::shared_ptr<ModuleType>(std::shared_ptr<void>(), &module), options) {}
  // Does not compile: the wrapped model has its wrapper already, and every gradient would be averaged twice.
  template <typename Other>
  explicit DistributedDataParallel(DistributedDataParallel<Other>& other, const Options& options = {})
      : DistributedDataParallelBase(nullptr, {}, {}, options), module_(other.module()) {
    static_assert(std::is_void_v<DistributedDataParallel<Other>>,
                  "DistributedDataParallel wraps a model and not another DistributedDataParallel: use the "
                  "one there is");
  }

  template <typename... Arguments> decltype(auto) forward(Arguments&&... arguments) {
    return run_forward(module_->is_training(), [&]() -> decltype(auto) {
      return module_->forward(std::forward<Arguments>(arguments)...);
    });
  }
  template <typename... Arguments> decltype(auto) operator()(Arguments&&... arguments) {
    return forward(std::forward<Arguments>(arguments)...);
  }

  // The wrapped model. Its own forward() does without what DDP does around a forward: the buffers of rank 0,
  // the checks of "Mistakes", the search for unused parameters. A backward through it averages gradients all
  // the same.
  const std::shared_ptr<ModuleType>& module() const { return module_; }
  // ddp->forward(x) is ddp.forward(x): code written for a ModuleHolder keeps working.
  DistributedDataParallel* operator->() { return this; }
  const DistributedDataParallel* operator->() const { return this; }

  void train(bool on = true) { module_->train(on); }
  void eval() { train(false); }
  bool is_training() const { return module_->is_training(); }

 private:
  std::shared_ptr<ModuleType> module_;
};

// A list of named tensors.
template <> class DistributedDataParallel<void> : public DistributedDataParallelBase {
 public:
  using Options = DistributedDataParallelOptions;

  DistributedDataParallel(NamedTensors parameters, NamedTensors buffers, const Options& options = {})
      : DistributedDataParallelBase(nullptr, std::move(parameters), std::move(buffers), options) {}

  // Calls `forward` and returns what it returns.
  template <std::invocable Forward> decltype(auto) forward(Forward&& forward) {
    return run_forward(training_, std::forward<Forward>(forward));
  }
  template <std::invocable Forward> decltype(auto) operator()(Forward&& forward) {
    return run_forward(training_, std::forward<Forward>(forward));
  }
  DistributedDataParallel* operator->() { return this; }
  const DistributedDataParallel* operator->() const { return this; }

  void train(bool on = true) { training_ = on; }
  void eval() { train(false); }
  bool is_training() const { return training_; }

 private:
  bool training_ = true;
};

template <typename ModuleType>
DistributedDataParallel(DistributedDataParallel<ModuleType>&, DistributedDataParallelOptions = {})
    -> DistributedDataParallel<ModuleType>;
template <typename ModuleType>
DistributedDataParallel(torch::nn::ModuleHolder<ModuleType>, DistributedDataParallelOptions = {})
    -> DistributedDataParallel<ModuleType>;
template <typename ModuleType>
DistributedDataParallel(std::shared_ptr<ModuleType>, DistributedDataParallelOptions = {})
    -> DistributedDataParallel<ModuleType>;
template <std::derived_from<torch::nn::Module> ModuleType>
DistributedDataParallel(ModuleType&, DistributedDataParallelOptions = {})
    -> DistributedDataParallel<ModuleType>;
DistributedDataParallel(NamedTensors, NamedTensors, DistributedDataParallelOptions = {})
    ->DistributedDataParallel<void>;

}  // namespace lockstep

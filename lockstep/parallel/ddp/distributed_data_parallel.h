// DistributedDataParallel: trains one model on several ranks. Each rank runs forward and backward on its own
// share of the batch. Gradients are averaged while backward runs, so every rank takes the same optimiser
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
// A model need not be a torch::nn::Module. It can be a list of named tensors, with any callable as its
// forward:
//
//   dist::DistributedDataParallel ddp(dist::NamedTensors{{"w", w}, {"b", b}}, /*buffers=*/{});
//   auto loss = ddp.forward([&] { return (x.mm(w) + b - y).pow(2).mean(); });
//
// Several backward passes can be summed up for one step. Only the last one communicates:
//
//   {
//     auto guard = ddp.no_sync();
//     loss_of(ddp->forward(first_half)).backward();
//   }
//   loss_of(ddp->forward(second_half)).backward();                    // averages the sum of both
//
// Collective  construction; forward in training mode, if there are buffers and broadcast_buffers is set;
//             backward, unless under no_sync. Forward in eval mode or without grad mode never communicates,
//             so rank 0 may evaluate alone. Every rank runs the same number of backward passes, or joins
//             (job/join.h).
// Wrapping    verifies that every rank wraps the same model (names, shapes, strides, dtypes, options). Then
//             it gives every rank the parameters and buffers of rank 0. So initial weights may differ; from
//             then on they are equal. The very first backward already leaves equal gradients on every rank.
//             (Articles that show different gradients after the first backward look at a rank's own gradient
//             before the average.)
// Gradients   are the average over ranks of the gradients of each rank's backward, bit-identical everywhere.
//             If every rank's loss is the mean over equal shares of a batch, they are those of the mean over
//             the whole batch. .grad lies in a flat bucket in memory shared by the ranks. zero_grad() costs
//             one copy per gradient and step; zero_grad(false) costs none. Accumulation, clipping, several
//             optimisers and hooks on parameters work as without DDP.
// Buckets     hold the gradients in the order in which rank 0's arrived in the first averaged backward.
//             Before that, and with find_unused_parameters, the order is the reverse of the registration. The
//             order does not show in the bits.
// Unused      A parameter without a gradient is an InvalidArgument that names it, thrown by that same
//             backward(). Peers get an Aborted that names it and this rank, at their next collective at the
//             latest. With find_unused_parameters the parameter contributes zeros; if no rank used it, its
//             .grad stays as it was. (Do not combine that option with checkpointing that runs a backward
//             inside the backward, because parameters inside a checkpoint would look unused. Use
//             static_graph.) Without the option, a backward that reaches no parameter of the model at all is
//             not noticed. Peers then wait for this rank and say so after 5 s.
// Static      With static_graph each averaged backward gives each parameter as many gradients as the first
//             one did on this rank: none, one, or several if checkpointed blocks share it. No graph is
//             searched, and unused parameters are known from the second step on. Checkpointing that runs a
//             backward inside the backward works (if the type that forward returns can be searched for
//             tensors: forward_outputs.h). The first backward does not overlap with its communication. A
//             backward that differs from the first is an InvalidArgument that names the parameter.
// Skipped     steps. If an exception ends a step between forward and backward on one rank alone, this rank's
//             next step would meet an earlier step of the other ranks. So each rank counts the forwards that
//             an exception left (left_forwards.h says which it sees). The next backward compares the counts,
//             and is a Mismatch on all ranks if they differ. Forwards in eval mode, without grad mode, under
//             no_sync and in a join are not counted. So run a forward that may throw and be tried again under
//             no_sync, and its backward after that.
// Fails       InvalidArgument: no parameter that requires a gradient; backward(create_graph = true); a
//             quantised tensor; a trained tensor of expand(); a process outside process_group; two threads in
//             backward of one model. Mismatch: models or options differ. PeerLost, Timeout, Aborted: as any
//             collective, from forward() or backward(), with that type. After an error in backward the
//             gradients are unspecified, and the next forward throws the error again.
// Mistakes    The next forward throws if a parameter's dtype, shape or device was changed, if it was
//             unfrozen, or if it was registered or replaced in the module. The error names it. Wrap again
//             after such a change: ddp = DistributedDataParallel(net). A parameter frozen since is named by
//             the backward that misses it. check_optimizers() names a parameter that no optimiser steps.
//             check_buffers() names a buffer that the model has replaced by another tensor.
// Loading     into the wrapped model works: torch::load(net, file), load_state_dict(), to() another type and
//             back. Each rank loads on its own.
// Kept        A program may keep a .grad over zero_grad(), as gradient surgery does. It keeps its values: the
//             bucket moves to new memory, and the old memory stays until the last such .grad is gone. A .grad
//             of the program's own with another reference, such as a view of one flat tensor of all
//             gradients, stays the tensor it is. The average is copied into it, which costs two copies per
//             step instead of one.
// Several     wrappers may share a parameter (actor and critic with one encoder; an old wrapper and a new
//             one). Gradients are those of Python's DDP. A wrapper takes a shared parameter's gradient if its
//             forward ran since its last backward. So either each wrapper's backward() follows its own
//             forward(), or one backward() runs on the sum of their losses. Anything else is an
//             InvalidArgument.
// Sparse      gradients are sent as rows, after the last bucket, and without a communication hook. These are
//             the gradients of torch::nn::Embedding and EmbeddingBag with sparse(true), and those named in
//             sparse_gradients. .grad is then the coalesced average.
// Virtual     ranks (parallel/virtual_ranks/virtual_ranks.h): forward in training and backward run in a loop
//             over virtual_ranks(), on models in CPU memory and the job's world. The last turn averages, with
//             the bits of a job that has one process for each virtual rank. InvalidArgument names what
//             virtual ranks exclude: static_graph, backward_passes_per_step, sparse gradients, communication
//             hooks, a Join, SyncBatchNorm, parameters that wrappers share.
// On a GPU    the whole model is on this rank's device, and the group is one over nccl (docs/backends.md).
//             Sparse gradients are refused there. Backward returns before the averages are complete. The
//             group's next call throws a failure after that, and the gradients then have no meaning.
// Lifetime    The model lives at least as long as the wrapper. The destructor does not communicate.
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
#include "lockstep/parallel/ddp/reducer.h"
#include "lockstep/parallel/ddp/stats.h"
#include "lockstep/parallel/gradients/hooks/comm_hook.h"
#include "lockstep/parallel/replicas/buffer_watch.h"
#include "lockstep/parallel/replicas/forward_outputs.h"
#include "lockstep/parallel/replicas/model_watch.h"

namespace torch::optim {
class Optimizer;
}

namespace lockstep {

class VirtualReplica;

struct DistributedDataParallelOptions {
  // gives every rank the buffers of rank 0 at each forward in training mode
  bool broadcast_buffers = true;
  std::optional<ProcessGroup> process_group = {};  // default: world()
  std::optional<double> bucket_cap_mb = {};        // MiB; default 25
  bool find_unused_parameters = false;             // some parameters are not used in some iterations
  bool static_graph = false;                       // every backward has the graph of the first one
  std::vector<int> device_ids = {};                // the model's GPU, or none
  // Names of parameters whose gradients are sparse, besides the weights of torch::nn::Embedding(Bag) with
  // sparse(true).
  std::vector<std::string> sparse_gradients = {};
  std::optional<double> first_bucket_mb = {};  // default: 1 if bucket_cap_mb is not set, else the same
  int backward_passes_per_step = 1;            // a gradient may arrive in any of these; the last one averages
};

// The common part of all forms. DistributedDataParallel below makes it.
class DistributedDataParallelBase : public Joinable {
 public:
  ~DistributedDataParallelBase() override = default;

  // Until the guard is destroyed, backward accumulates on this rank alone, and forward does not touch
  // buffers.
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

  // Throws InvalidArgument that names a trainable parameter that none of these optimisers steps. They were
  // made before the parameter was registered or replaced, or it was forgotten. Not collective.
  template <typename... Optimizers> void check_optimizers(const Optimizers&... optimizers) const {
    refuse_forgotten({static_cast<const torch::optim::Optimizer*>(&optimizers)...});
  }
  // Throws InvalidArgument that names a buffer which the model no longer uses, because it assigned another
  // tensor to the member (running = running + 1). Without this check, ranks would go on with different
  // buffers. Call it after the first forward. Not collective.
  void check_buffers() const;

  // In the order of registration, for optimisers. A shared parameter comes once. (libtorch's own parameters()
  // repeats it.)
  std::vector<at::Tensor> parameters() const;
  torch::OrderedDict<std::string, at::Tensor> named_parameters() const;
  torch::OrderedDict<std::string, at::Tensor> named_buffers() const;
  // As zero_grad() of a module or an optimiser.
  void zero_grad(bool set_to_none = true);
  // Does nothing if the model has that device and dtype already. Otherwise throws InvalidArgument: move the
  // model, then wrap it.
  void to(at::Device device, bool /*non_blocking*/ = false) { refuse_move(device, std::nullopt); }
  void to(at::ScalarType dtype, bool /*non_blocking*/ = false) { refuse_move(std::nullopt, dtype); }
  void to(at::Device device, at::ScalarType dtype, bool /*non_blocking*/ = false) {
    refuse_move(device, dtype);
  }
  // Parameters and buffers by their names in the model, without a "module." prefix. These are the tensors
  // themselves, not copies.
  torch::OrderedDict<std::string, at::Tensor> state_dict() const;
  // Copies values into the model, on this rank only, so call it on every rank. Names may carry one "module."
  // prefix, as Python's DDP writes. Throws InvalidArgument before anything is copied: names missing or
  // unknown, shapes that differ.
  void load_state_dict(const torch::OrderedDict<std::string, at::Tensor>& state);

  // Sets what reduces the gradients from now on, in place of a plain average (gradients/hooks/comm_hook.h).
  // It is a hook of the registry by its name (gradients/hooks/hook_registry.h), an object, or a function with
  // a name. Collective. Once, before the first backward. Throws InvalidArgument otherwise, or for an unknown
  // name; Mismatch if ranks register different hooks.
  void register_comm_hook(const std::string& name);
  void register_comm_hook(std::shared_ptr<CommHook> hook);
  void register_comm_hook(const std::string& name, FunctionHook::Function function);
  std::shared_ptr<CommHook> comm_hook() const;  // null if there is none

  // For a Join (job/join.h): dist::join({&ddp}, [&] { ... }). A rank without inputs takes part in the
  // averages with zeros, and its gradients become the averages. Buffers are those of the largest rank that
  // still has inputs. In the end all ranks get the parameters and buffers of the largest rank whose loop was
  // the longest. State of hooks and optimisers stays each rank's own.
  std::shared_ptr<JoinHook> join_hook(const JoinOptions& options) override;
  const ProcessGroup& join_process_group() const override { return group_; }

  const ProcessGroup& process_group() const { return group_; }
  DistributedDataParallelStats stats() const;
  // The gradients that travel together, and their order, one line per bucket: "#0 float32 1280 bytes: fc.bias
  // fc.weight".
  std::string bucket_table() const;
  // Returns the times of every rank's last step, and which rank came last and why (step_times.h; to_string()
  // makes a table). Collective.
  RankTimes compare_ranks() const;

 protected:
  // `module` is null for a list of tensors.
  DistributedDataParallelBase(const torch::nn::Module* module, NamedTensors parameters, NamedTensors buffers,
                              const DistributedDataParallelOptions& options);
  DistributedDataParallelBase(DistributedDataParallelBase&&) = default;
  DistributedDataParallelBase& operator=(DistributedDataParallelBase&&) = default;

  // Runs a forward with everything that DDP does around it. Returns the forward's result.
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
  // a forward that an exception leaves is compared with the other ranks
  bool counts_forwards(bool training) const;
  void refuse_move(const std::optional<at::Device>& device, const std::optional<at::ScalarType>& dtype) const;
  void refuse_forgotten(const std::vector<const torch::optim::Optimizer*>& optimizers) const;
  void after_forward(bool training, const OutputTensors& outputs);

  ProcessGroup group_;
  NamedTensors parameters_;  // by every name; several names may be of one tensor
  NamedTensors buffers_;
  bool broadcast_buffers_;
  std::string model_;  // its name, for messages
  ModelWatch watch_;
  BufferWatch buffer_watch_;
  std::shared_ptr<Reducer> reducer_;
  std::shared_ptr<VirtualReplica> virtual_replica_;  // null without virtual ranks
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
  // Wraps a module that the caller keeps alive.
  explicit DistributedDataParallel(std::type_identity_t<ModuleType>& module, const Options& options = {})
      : DistributedDataParallel(std::shared_ptr<ModuleType>(std::shared_ptr<void>(), &module), options) {}
  // Does not compile. The wrapped model already has a wrapper, and every gradient would be averaged twice.
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

  // The wrapped model. Its own forward() lacks what DDP does around a forward: the buffers of rank 0, the
  // checks of "Mistakes", the search for unused parameters. A backward through it averages gradients all the
  // same.
  const std::shared_ptr<ModuleType>& module() const { return module_; }
  // ddp->forward(x) is ddp.forward(x), so code written for a ModuleHolder keeps working.
  DistributedDataParallel* operator->() { return this; }
  const DistributedDataParallel* operator->() const { return this; }

  void train(bool on = true) { module_->train(on); }
  void eval() { train(false); }
  bool is_training() const { return module_->is_training(); }

 private:
  std::shared_ptr<ModuleType> module_;
};

// Wraps a list of named tensors.
template <> class DistributedDataParallel<void> : public DistributedDataParallelBase {
 public:
  using Options = DistributedDataParallelOptions;

  DistributedDataParallel(NamedTensors parameters, NamedTensors buffers, const Options& options = {})
      : DistributedDataParallelBase(nullptr, std::move(parameters), std::move(buffers), options) {}

  // Calls `forward` and returns its result.
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

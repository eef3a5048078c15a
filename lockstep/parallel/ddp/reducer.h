// Reducer: averages the gradients of one model over the ranks of a group while backward runs. The heart of
// DistributedDataParallel, which is what a program uses.
//
//             first gradient of a backward that is to be averaged        backward ends, all buckets started
//      ┌──────┐ ─────────────────────────────────────────────▶ ┌────────────┐ ───────────────▶ ┌─────────┐
//      │ IDLE │                                                │ COLLECTING │                  │ WAITING │
//      └──────┘ ◀───────────────────────────────────────────── └────────────┘ ──────────────── └─────────┘
//       │    ▲                            all averages have arrived
//       ▼    │ backward ends
//      ┌──────────────┐
//      │ ACCUMULATING │  under no_sync, or an earlier one of several declared passes: nothing is communicated
//      └──────────────┘
//      any ── error ──▶ FAILED, for good: each later forward and backward repeats the error, gradients are
//                       unspecified
//
// COLLECTING  each gradient is taken into its bucket the moment autograd has accumulated it. A bucket whose
//             gradients are all there is complete; complete buckets start their all-reduce in index order, on
//             every rank, from the first iteration on; with static_graph from the second on, because the
//             first shows which gradients there are.
// WAITING     the lock is not held.
// Threads     autograd may call the hooks on any thread: one mutex guards everything. A gradient that arrives
//             on another thread for another backward while one is under way is an error.
// Shared      with another live wrapper: parameter_claims.h says which of them take a gradient, and .grad of
//             a shared parameter never lies in a bucket, so that each reads what autograd made and none sees
//             the other's average under way.
// Failure     of this rank alone (a parameter without gradient, a sparse gradient) aborts the group with the
//             reason, so that its peers get an error that names it instead of waiting, in this backward or at
//             their next collective.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/parallel/ddp/left_forwards.h"
#include "lockstep/parallel/ddp/stats.h"
#include "lockstep/parallel/gradients/autograd_hooks.h"
#include "lockstep/parallel/gradients/bucket_plan.h"
#include "lockstep/parallel/gradients/hooks/comm_hook.h"
#include "lockstep/parallel/gradients/parameter_claims.h"
#include "lockstep/tensor/named_tensors.h"

namespace lockstep {

class GradientAverage;
class ModelGradients;

struct ReducerOptions {
  BucketCaps caps;
  int backward_passes_per_step = 1;
  bool find_unused_parameters = false;        // looks for them in each forward
  bool static_graph = false;                  // finds them once, in place of that
  std::vector<std::string> sparse_gradients;  // names of parameters
  std::string model = {};                     // its name, for messages
};

class Reducer : public std::enable_shared_from_this<Reducer> {
 public:
  // `parameters`: distinct leaves that require gradients, equal on every rank of the group.
  static std::shared_ptr<Reducer> create(const NamedTensors& parameters, const ProcessGroup& group,
                                         const ReducerOptions& options);
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;
  ~Reducer();

  // Repeats the error of a failed reducer. Finds a backward that was left by an exception, and changed
  // parameters. Fails with `mistake`, if there is one.
  void before_forward(const std::optional<std::string>& mistake);
  void after_forward();
  // Whether the next three are worth calling: the options need them, and not under no_sync.
  bool wants_outputs() const;
  // find_unused_parameters: parameters that no tensor in `outputs` depends on will not hold back their
  // buckets. static_graph: a backward through `outputs` has ended when it has, however many ran inside it.
  void note_outputs(const std::vector<at::Tensor>& outputs);
  // Of this rank, compared with the others' when a bucket is: forwards that are to be averaged and that an
  // exception left behind.
  LeftForwards& left_forwards() { return left_forwards_; }
  void note_unknown_outputs();  // outputs that could not be looked into: any parameter may get a gradient
  // If the outputs depend on no parameter at all, no gradient will ever arrive: takes part in the average
  // with zeros, so that peers whose outputs do need not wait. For training; blocks until they have come
  // through their backward.
  void take_part_if_unreached();

  // Whether a backward that begins now is to be averaged. Returns what was set before.
  bool set_synchronised(bool on);
  bool is_synchronised() const;

  // Throws InvalidArgument for a second one, or after the first backward. Not collective: the caller has
  // compared them.
  void register_comm_hook(std::shared_ptr<CommHook> hook);
  std::shared_ptr<CommHook> comm_hook() const;  // null: none

  std::string bucket_table() const;

  // For a Join. `announce` is called when a backward that will be averaged begins, before it communicates,
  // and may return a function, which is called when the averages have arrived and says by what they must be
  // multiplied.
  using Announce = std::function<std::function<double()>()>;
  void set_announce(Announce announce);
  // This rank has no more inputs: takes part in an average of the others with zeros. Its gradients become
  // that average, times `factor`.
  void stand_in(double factor);

  DistributedDataParallelStats stats() const;

 private:
  enum class State { IDLE, COLLECTING, ACCUMULATING, WAITING, FAILED };
  using Lock = std::unique_lock<std::mutex>;

  Reducer(const NamedTensors& dense, const NamedTensors& sparse, const ProcessGroup& group,
          const ReducerOptions& options);

  void on_gradient(std::size_t index, const at::Tensor& incoming);
  void on_end_of_backward(std::uint64_t pass);
  void on_end_of_backward_through_outputs();

  // The following need the lock.
  template <typename Body>
  void fail_on_error(Lock& lock,
                     Body body);  // becomes FAILED when `body` throws, and lets the exception pass
  void fail(const std::exception_ptr& error);
  [[noreturn]] void refuse(const std::string& reason) const;
  void transition(State next);
  void join_pass();
  void begin_pass();
  void follow_backward(int backward);
  void accept(std::size_t index, const at::Tensor& incoming);
  void refuse_missing(const std::vector<std::string>& names) const;
  void end_pass(Lock& lock);
  void average(Lock& lock);

  // constant after construction
  const ProcessGroup group_;
  const ReducerOptions options_;
  std::unique_ptr<ParameterClaims> claims_;
  std::unique_ptr<AutogradHooks> hooks_;
  LeftForwards left_forwards_;  // has no state that the lock guards

  mutable std::mutex mutex_;
  // guarded by mutex_
  State state_ = State::IDLE;
  std::exception_ptr failure_;
  // In WAITING the waiting thread uses both without the lock.
  const std::unique_ptr<ModelGradients> gradients_;
  const std::unique_ptr<GradientAverage> average_;
  bool has_averaged_ = false;  // and learnt the order of gradients and, if it is static, the graph
  bool synchronised_ = true;
  Announce announce_;
  std::function<double()> factor_;  // of the averages of this backward
  bool stands_in_ = false;
  int declared_passes_ = 0;  // synchronised backward passes since the last average
  std::uint64_t pass_ = 0;   // numbers the backward passes
  std::thread::id pass_thread_;
  int last_backward_ = -1;  // autograd's number of the backward that was followed last
  std::optional<std::vector<bool>>
      reached_;  // by the forwards since the last backward, if their outputs were seen
};

}  // namespace lockstep

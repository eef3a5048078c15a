// Reducer: averages the gradients of one model over the ranks of a group while backward runs. The heart of
// DistributedDataParallel, which is what a program uses.
//
// reducer_state.h draws its states, backward_passes.h says which backward averages.
//
// Threads     autograd may call the hooks on any thread: one mutex guards everything. A gradient that arrives
//             on another thread for another backward while one is under way is an error.
// Shared      with another live wrapper: parameter_claims.h says which of them take a gradient, and .grad of
//             a shared parameter never lies in a bucket, so that each reads what autograd made and none sees
//             the other's average under way.
// Virtual     ranks: virtual_turns.h. A backward of a turn before the last adds to sums of this process.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/job/virtual_rank_plan.h"
#include "lockstep/parallel/ddp/backward_passes.h"
#include "lockstep/parallel/ddp/forward_notes.h"
#include "lockstep/parallel/ddp/joined_average.h"
#include "lockstep/parallel/ddp/reducer_state.h"
#include "lockstep/parallel/gradients/autograd_hooks.h"
#include "lockstep/parallel/gradients/bucket_plan.h"
#include "lockstep/parallel/gradients/hooks/comm_hook.h"
#include "lockstep/parallel/gradients/parameter_claims.h"
#include "lockstep/tensor/named_tensors.h"

namespace lockstep {

class GradientAverage;
class ModelGradients;
class VirtualTurns;
enum class TurnEvent;

struct ReducerOptions {
  BucketCaps caps;
  int backward_passes_per_step = 1;
  bool find_unused_parameters = false;        // looks for them in each forward
  bool static_graph = false;                  // finds them once, in place of that
  std::vector<std::string> sparse_gradients;  // names of parameters
  std::string model = {};                     // its name, for messages
  std::optional<VirtualRankPlan> virtual_ranks = {};
};

class Reducer : public std::enable_shared_from_this<Reducer> {
 public:
  // `parameters`: distinct leaves that require gradients, equal on every rank of the group.
  static std::shared_ptr<Reducer> create(const NamedTensors& parameters, const ProcessGroup& group,
                                         const ReducerOptions& options);

  // Repeats the error of a failed reducer. Finds a backward that was left by an exception, and changed
  // parameters. Fails with `mistake`, if there is one.
  void before_forward(const std::optional<std::string>& mistake);
  void after_forward();
  // Whether the next two are worth calling: the options need them, and not under no_sync.
  bool wants_outputs() const;
  // find_unused_parameters: parameters that no tensor in `outputs` depends on will not hold back their
  // buckets. static_graph: a backward through `outputs` has ended when it has, however many ran inside it.
  // Outputs that could not be looked into are none: any parameter may get a gradient.
  void note_outputs(const std::optional<std::vector<at::Tensor>>& outputs);
  // If the outputs depend on no parameter at all, no gradient will ever arrive: takes part in the average
  // with zeros, so that peers whose outputs do need not wait. For training; blocks until they have come
  // through their backward.
  void take_part_if_unreached();
  // Of this rank, compared with the others' when a bucket is: forwards that are to be averaged and that an
  // exception left behind.
  LeftForwards& left_forwards() { return forwards_.left(); }

  // Whether a backward that begins now is to be averaged. Returns what was set before.
  bool set_synchronised(bool on);
  bool is_synchronised() const;

  // Throws InvalidArgument for a second one, or after the first backward. Not collective: the caller has
  // compared them.
  void register_comm_hook(std::shared_ptr<CommHook> hook);

  // What `question` answers of the average: its table, its counts, its hook.
  template <typename Question> auto ask(Question question) const {
    const std::lock_guard lock(mutex_);
    return question(static_cast<const GradientAverage&>(*average_));
  }

  // For a Join.
  void set_announce(JoinedAverage::Announce announce);
  // This rank has no more inputs: takes part in an average of the others with zeros. Its gradients become
  // that average, times `factor`.
  void stand_in(double factor);

  // For the turns of virtual ranks, of a reducer that was made for them.
  void on_turn(TurnEvent event, int virtual_rank = 0);

 private:
  using State = ReducerState::State;
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
  [[noreturn]] void refuse(const std::string& reason) const;
  void join_pass();
  void begin_pass();
  void accept(std::size_t index, const at::Tensor& incoming);
  void end_pass(Lock& lock);
  void average(Lock& lock);

  // constant after construction
  const ProcessGroup group_;
  const ReducerOptions options_;

  mutable std::mutex mutex_;
  // guarded by mutex_
  ParameterClaims claims_;
  ReducerState state_;
  // In WAITING the waiting thread uses both without the lock.
  const std::shared_ptr<ModelGradients> gradients_;
  const std::shared_ptr<GradientAverage> average_;
  BackwardPasses passes_;
  ForwardNotes forwards_;
  JoinedAverage joined_;
  const std::shared_ptr<VirtualTurns> turns_;  // null: without virtual ranks
  AutogradHooks hooks_;                        // goes first: no hook is called after that
};

}  // namespace lockstep

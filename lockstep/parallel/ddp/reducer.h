// Reducer: averages the gradients of one model over the ranks of a group while backward runs. It is the core
// of DistributedDataParallel, which programs use.
//
// reducer_state.h draws its states. backward_passes.h says which backward averages.
//
// Threads     autograd may call the hooks on any thread, so one mutex guards everything. While a backward is
//             under way, a gradient of another backward on another thread is an error.
// Shared      parameters: parameter_claims.h says which wrapper takes a gradient. The .grad of a shared
//             parameter never lies in a bucket. So each wrapper reads the gradient that autograd made, and
//             none sees another's average under way.
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
  bool find_unused_parameters = false;        // searches for them in each forward
  bool static_graph = false;                  // instead finds them once
  std::vector<std::string> sparse_gradients;  // names of parameters
  std::string model = {};                     // its name, for messages
  std::optional<VirtualRankPlan> virtual_ranks = {};
};

class Reducer : public std::enable_shared_from_this<Reducer> {
 public:
  // `parameters` are distinct leaves that require gradients, equal on every rank of the group.
  static std::shared_ptr<Reducer> create(const NamedTensors& parameters, const ProcessGroup& group,
                                         const ReducerOptions& options);

  // Throws the error of a failed reducer again. Finds a backward that an exception left, and changed
  // parameters. Fails with `mistake`, if there is one.
  void before_forward(const std::optional<std::string>& mistake);
  void after_forward();
  // Whether the next two functions have to be called: the options need them, and no_sync is not on.
  bool wants_outputs() const;
  // find_unused_parameters: a parameter on which no tensor in `outputs` depends does not hold back its
  // bucket. static_graph: when a backward through `outputs` has ended, the pass has ended, however many
  // backwards ran inside it. `outputs` is none if they could not be searched; then any parameter may get a
  // gradient.
  void note_outputs(const std::optional<std::vector<at::Tensor>>& outputs);
  // If the outputs depend on no parameter at all, no gradient will ever arrive. This rank then takes part in
  // the average with zeros, so that its peers need not wait. For training. Blocks until the peers have
  // finished their backward.
  void take_part_if_unreached();
  // The forwards of this rank that an exception left behind and that count for an average. Ranks compare
  // their number with each bucket.
  LeftForwards& left_forwards() { return forwards_.left(); }

  // Says whether a backward that begins now will be averaged. Returns the earlier setting.
  bool set_synchronised(bool on);
  bool is_synchronised() const;

  // Throws InvalidArgument for a second hook, or after the first backward. Not collective: the caller has
  // compared the hooks.
  void register_comm_hook(std::shared_ptr<CommHook> hook);

  // Asks the average `question`, about its table, its counts or its hook.
  template <typename Question> auto ask(Question question) const {
    const std::lock_guard lock(mutex_);
    return question(static_cast<const GradientAverage&>(*average_));
  }

  // For a Join.
  void set_announce(JoinedAverage::Announce announce);
  // For a rank without further inputs: takes part in an average of the other ranks with zeros. Its gradients
  // become that average, times `factor`.
  void stand_in(double factor);

  // For the turns of virtual ranks, if the reducer was made for them.
  void on_turn(TurnEvent event, int virtual_rank = 0);

 private:
  using State = ReducerState::State;
  using Lock = std::unique_lock<std::mutex>;

  Reducer(const NamedTensors& dense, const NamedTensors& sparse, const ProcessGroup& group,
          const ReducerOptions& options);

  void on_gradient(std::size_t index, const at::Tensor& incoming);
  void on_end_of_backward(std::uint64_t pass);
  void on_end_of_backward_through_outputs();

  // The following functions are called with the lock held.
  template <typename Body>
  void fail_on_error(Lock& lock,
                     Body body);  // becomes FAILED if `body` throws, and rethrows the exception
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
  const std::shared_ptr<VirtualTurns> turns_;  // null without virtual ranks
  AutogradHooks hooks_;                        // destroyed first: no hook is called after that
};

}  // namespace lockstep

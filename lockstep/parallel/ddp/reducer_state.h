// ReducerState: the state of a Reducer between the backward passes of its model, and the failure that ended
// it.
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
//     any ── error ──▶ FAILED, for good: each later forward and backward throws the error again, and
//                      gradients are unspecified
//
// COLLECTING  each gradient is moved into its bucket as soon as autograd has accumulated it. A bucket is
//             complete when all its gradients have arrived. Complete buckets start their all-reduce in index
//             order, on every rank, from the first iteration on. With static_graph they do so from the second
//             on, because the first one shows which gradients there are.
// WAITING     the lock of the Reducer is not held.
// FAILED      a failure of this rank alone (a parameter without gradient, a sparse gradient) aborts the group
//             with the reason. So its peers do not wait: they get an error that names the failure, in this
//             backward or at their next collective.
#pragma once

#include <exception>

#include "lockstep/comm/process_group.h"
#include "lockstep/parallel/gradients/parameter_claims.h"

namespace lockstep {

class ReducerState {
 public:
  enum class State { IDLE, COLLECTING, ACCUMULATING, WAITING, FAILED };

  // The claims outlive it. They are told whether a pass is under way.
  ReducerState(ProcessGroup group, ParameterClaims& claims) : group_(std::move(group)), claims_(claims) {}

  bool is(State state) const { return state_ == state; }
  bool is_in_backward() const { return is(State::COLLECTING) || is(State::ACCUMULATING); }
  void transition(State next);  // throws InternalError for a transition that is not drawn
  void fail(const std::exception_ptr& error);
  void rethrow_failure() const;  // does nothing unless FAILED

 private:
  const ProcessGroup group_;
  ParameterClaims& claims_;
  State state_ = State::IDLE;
  std::exception_ptr failure_;
};

}  // namespace lockstep

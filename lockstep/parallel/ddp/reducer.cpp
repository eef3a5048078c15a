#include "lockstep/parallel/ddp/reducer.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/exception_text.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

// After these the group is closed already, for every rank.
bool came_from_the_group(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    const ErrorCode code = known.code();
    return code == ErrorCode::PEER_LOST || code == ErrorCode::TIMEOUT || code == ErrorCode::MISMATCH ||
           code == ErrorCode::ABORTED;
  } catch (...) {
    return false;
  }
}

// "a", "b" and 3 more
std::string list_of(const std::vector<std::string>& names) {
  constexpr std::size_t SHOWN = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(SHOWN, names.size()); ++i) {
    text += str(i == 0 ? "" : ", ", "\"", printable(names[i]), "\"");
  }
  if (names.size() > SHOWN) text += str(" and ", names.size() - SHOWN, " more");
  return text;
}

}  // namespace

std::shared_ptr<Reducer> Reducer::create(const NamedTensors& parameters, const ProcessGroup& group,
                                         const ReducerOptions& options) {
  std::shared_ptr<Reducer> reducer(new Reducer(parameters, group, options));
  std::vector<at::Tensor> leaves;
  for (const auto& [name, tensor] : parameters) leaves.push_back(tensor);
  // The hooks are a member and go when the Reducer goes: a plain pointer is enough.
  reducer->hooks_ = std::make_unique<AutogradHooks>(
      leaves, [self = reducer.get()](std::size_t index) { self->on_gradient(index); });
  return reducer;
}

Reducer::Reducer(const NamedTensors& parameters, const ProcessGroup& group, const ReducerOptions& options)
    : group_(group), options_(options), buckets_(parameters, group, options.caps) {}

// ---------------------------------------------------------------------------------------------------- entry points

void Reducer::before_forward() {
  Lock lock(mutex_);
  fail_on_error(lock, [&] {
    if (state_ == State::FAILED) std::rethrow_exception(failure_);
    if (state_ == State::ACCUMULATING) transition(State::IDLE);  // left by an exception, on this rank alone
    if (state_ != State::IDLE) {
      refuse(group_,
             "forward() while a backward() of this model has not ended: an exception ended it early on this "
             "rank, so its "
             "gradients were not averaged, or another thread is still in it");
    }
    buckets_.refuse_changed();  // libtorch drops the hooks of a parameter whose dtype changes
  });
}

bool Reducer::wants_outputs() const {
  const std::lock_guard lock(mutex_);
  return options_.find_unused_parameters && synchronised_;
}

void Reducer::note_outputs(const std::vector<at::Tensor>& outputs) {
  const std::vector<bool> reachable = hooks_->reachable_from(outputs);
  const std::lock_guard lock(mutex_);
  if (!reached_) reached_.emplace(buckets_.size(), false);
  for (std::size_t i = 0; i < reachable.size(); ++i) (*reached_)[i] = (*reached_)[i] || reachable[i];
}

void Reducer::note_unknown_outputs() {
  const std::lock_guard lock(mutex_);
  reached_.emplace(buckets_.size(), true);
}

void Reducer::take_part_if_unreached() {
  Lock lock(mutex_);
  const bool any_reached =
      !reached_ || std::find(reached_->begin(), reached_->end(), true) != reached_->end();
  if (any_reached || !buckets_.any_requires_grad()) return;
  fail_on_error(lock, [&] {
    begin_pass();
    end_pass(lock);
  });
}

bool Reducer::set_synchronised(bool on) {
  const std::lock_guard lock(mutex_);
  return std::exchange(synchronised_, on);
}

bool Reducer::is_synchronised() const {
  const std::lock_guard lock(mutex_);
  return synchronised_;
}

DistributedDataParallelStats Reducer::stats() const {
  const std::lock_guard lock(mutex_);
  return buckets_.stats();
}

void Reducer::on_gradient(std::size_t index) {
  Lock lock(mutex_);
  fail_on_error(lock, [&] {
    join_pass();
    accept(index);
  });
}

void Reducer::on_end_of_backward(std::uint64_t pass) {
  Lock lock(mutex_);
  if (pass != pass_ || (state_ != State::COLLECTING && state_ != State::ACCUMULATING)) return;
  // A backward inside this one has ended (reentrant checkpointing): more gradients may come, unless all have.
  if (AutogradHooks::ended_inside_another_backward() && !buckets_.all_arrived()) return;
  fail_on_error(lock, [&] { end_pass(lock); });
}

// ------------------------------------------------------------------------------------------------- failure and state

template <typename Body> void Reducer::fail_on_error(Lock& lock, Body body) {
  try {
    body();
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    fail(std::current_exception());
    throw;
  }
}

void Reducer::fail(const std::exception_ptr& error) {
  if (state_ == State::FAILED) return;  // the first failure is the one to report
  transition(State::FAILED);
  failure_ = error;
  if (came_from_the_group(error)) return;
  try {
    group_.abort(exception_text(error));
  } catch (...) {  // the error that led here matters more; peers still have their deadline
  }
}

void Reducer::transition(State next) {
  const auto is = [&](State from, State to) { return state_ == from && next == to; };
  const bool drawn = next == State::FAILED || is(State::IDLE, State::COLLECTING) ||
                     is(State::COLLECTING, State::WAITING) || is(State::WAITING, State::IDLE) ||
                     is(State::IDLE, State::ACCUMULATING) || is(State::ACCUMULATING, State::IDLE);
  if (!drawn) {
    throw InternalError(str("DDP reducer: no transition from state ", static_cast<int>(state_), " to ",
                            static_cast<int>(next)));
  }
  state_ = next;
}

// ------------------------------------------------------------------------------------------------------ one backward

// Finds or begins the backward pass that a gradient belongs to.
void Reducer::join_pass() {
  if (state_ == State::FAILED) std::rethrow_exception(failure_);
  if (AutogradHooks::is_creating_graph()) {
    refuse(group_,
           "backward(create_graph = true) would leave gradients whose graph knows nothing of the other "
           "ranks; take the "
           "inner gradient with torch::autograd::grad(..., create_graph = true) and call backward() on the "
           "outer loss");
  }
  const int backward = AutogradHooks::current_backward();
  if (state_ == State::IDLE) {
    begin_pass();
    pass_thread_ = std::this_thread::get_id();
    follow_backward(backward);
  } else if (backward != last_backward_) {
    // Autograd runs a backward inside another one on the same thread, so another thread means another caller.
    if (state_ == State::WAITING || pass_thread_ != std::this_thread::get_id()) {
      refuse(group_, "two threads are in backward() on one model; take turns, or wrap one model for each");
    }
    follow_backward(backward);
  }
}

void Reducer::begin_pass() {
  declared_passes_ += synchronised_ ? 1 : 0;
  const bool last_pass = synchronised_ && declared_passes_ == options_.backward_passes_per_step;
  transition(last_pass ? State::COLLECTING : State::ACCUMULATING);
  ++pass_;
  buckets_.begin_pass();
  const auto reached = std::exchange(reached_, std::nullopt);
  if (!last_pass || !reached) return;
  for (std::size_t i = 0; i < reached->size(); ++i) {
    if (!(*reached)[i]) buckets_.leave_out(i);
  }
}

void Reducer::follow_backward(int backward) {
  last_backward_ = backward;
  AutogradHooks::at_end_of_backward([weak = weak_from_this(), pass = pass_] {
    if (const auto self = weak.lock()) self->on_end_of_backward(pass);
  });
}

void Reducer::accept(std::size_t index) {
  if (state_ == State::ACCUMULATING) return buckets_.add(index);
  if (const auto mistake = buckets_.too_late(index)) {
    refuse(group_,
           *mistake +
               ": it takes part outside the outputs of forward(), or in several checkpointed blocks, or an "
               "earlier backward() ended with an exception");
  }
  buckets_.add(index);
  buckets_.start_complete();
}

// --------------------------------------------------------------------------------------------------- end of backward

void Reducer::refuse_missing(const std::vector<std::string>& names) const {
  if (names.empty()) return;
  refuse(group_,
         str(names.size() == 1 ? "parameter " : "parameters ", list_of(names),
             " got no gradient in this backward()",
             options_.backward_passes_per_step > 1 ? " nor in the passes declared before it" : "",
             ". Make the loss depend on every parameter on every rank; or freeze what is not trained with "
             "requires_grad_(false) before wrapping; or set find_unused_parameters; or, if one step takes "
             "several backward passes, set backward_passes_per_step"));
}

void Reducer::end_pass(Lock& lock) {
  if (state_ == State::COLLECTING) {
    average(lock);
  } else {
    transition(State::IDLE);
  }
}

// A rank that misses gradients takes part with zeros before it says so: by then all ranks have come through this backward, so
// that each of them can find and name what it misses itself.
void Reducer::average(Lock& lock) {
  const auto missing =
      options_.find_unused_parameters ? std::vector<std::string>() : buckets_.without_gradient();
  for (std::size_t i = 0; i < buckets_.size(); ++i) buckets_.leave_out(i);
  buckets_.start_complete();
  if (options_.find_unused_parameters) buckets_.start_used_map();
  transition(State::WAITING);
  lock.unlock();
  try {
    buckets_.wait();
  } catch (const Aborted&) {  // perhaps by a peer that misses the same
    if (missing.empty()) throw;
  }
  lock.lock();
  if (state_ == State::FAILED) std::rethrow_exception(failure_);
  refuse_missing(missing);
  buckets_.settle();
  declared_passes_ = 0;
  transition(State::IDLE);
}

}  // namespace lockstep

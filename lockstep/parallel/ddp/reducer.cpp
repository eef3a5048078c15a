#include "lockstep/parallel/ddp/reducer.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/exception_text.h"
#include "lockstep/base/str.h"
#include "lockstep/parallel/ddp/ddp_wrapper.h"
#include "lockstep/parallel/ddp/gradient_average.h"

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

StepClock::Time now() { return std::chrono::steady_clock::now(); }

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
  NamedTensors dense;
  NamedTensors sparse;
  for (const auto& named : parameters) {
    const auto& names = options.sparse_gradients;
    (std::find(names.begin(), names.end(), named.first) == names.end() ? dense : sparse).push_back(named);
  }
  std::shared_ptr<Reducer> reducer(new Reducer(dense, sparse, group, options));
  std::vector<at::Tensor> leaves;
  for (const auto& [name, tensor] : dense) leaves.push_back(tensor);
  for (const auto& [name, tensor] : sparse) leaves.push_back(tensor);
  reducer->claims_ = std::make_unique<ParameterClaims>(leaves);
  // The hooks are a member and go when the Reducer goes: a plain pointer is enough.
  reducer->hooks_ = std::make_unique<AutogradHooks>(
      leaves, [self = reducer.get()](std::size_t index, const at::Tensor& incoming) {
        self->on_gradient(index, incoming);
      });
  return reducer;
}

Reducer::Reducer(const NamedTensors& dense, const NamedTensors& sparse, const ProcessGroup& group,
                 const ReducerOptions& options)
    : group_(group),
      options_(options),
      gradients_(std::make_unique<ModelGradients>(
          DDP_WRAPPER, group, dense, sparse,
          bucket_plan(sizes_of(dense), reverse_order(dense.size()), options.caps))),
      average_(std::make_unique<GradientAverage>(*gradients_, group, options.caps, options.model)) {
  if (options_.static_graph) gradients_->arrivals().watch_graph();
}

Reducer::~Reducer() = default;

// ---------------------------------------------------------------------------------------------------- entry
// points

void Reducer::before_forward(const std::optional<std::string>& mistake) {
  Lock lock(mutex_);
  fail_on_error(lock, [&] {
    if (state_ == State::FAILED) std::rethrow_exception(failure_);
    gradients_->end_pass();  // of a backward that was left by an exception
    if (state_ == State::ACCUMULATING) transition(State::IDLE);  // likewise, on this rank alone
    if (state_ != State::IDLE) {
      refuse(
          "forward() while a backward() of this model has not ended: an exception ended it early on this "
          "rank, so its gradients were not averaged, or another thread is still in it");
    }
    gradients_->refuse_changed();
    if (mistake) refuse(*mistake);
    hooks_->renew();
    if (!c10::GradMode::is_enabled()) return;
    claims_->forward_begins();
    average_->clock().forward_begins(now());
  });
}

void Reducer::after_forward() {
  const std::lock_guard lock(mutex_);
  average_->clock().forward_ended(now());
}

bool Reducer::wants_outputs() const {
  const std::lock_guard lock(mutex_);
  return (options_.find_unused_parameters || options_.static_graph) && synchronised_;
}

void Reducer::note_outputs(const std::vector<at::Tensor>& outputs) {
  if (options_.static_graph) {
    return AutogradHooks::at_end_of_backward_through(outputs, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->on_end_of_backward_through_outputs();
    });
  }
  const std::vector<bool> reachable = hooks_->reachable_from(outputs);
  const std::lock_guard lock(mutex_);
  if (!reached_) reached_.emplace(gradients_->size(), false);
  for (std::size_t i = 0; i < reachable.size(); ++i) (*reached_)[i] = (*reached_)[i] || reachable[i];
}

void Reducer::note_unknown_outputs() {
  if (options_.static_graph) return;
  const std::lock_guard lock(mutex_);
  reached_.emplace(gradients_->size(), true);
}

void Reducer::take_part_if_unreached() {
  Lock lock(mutex_);
  const bool any_reached =
      !reached_ || std::find(reached_->begin(), reached_->end(), true) != reached_->end();
  if (any_reached || !gradients_->any_requires_grad()) return;
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

void Reducer::register_comm_hook(std::shared_ptr<CommHook> hook) {
  const std::lock_guard lock(mutex_);
  if (average_->hook()) {
    refuse(str("register_comm_hook() was called before, for \"", printable(average_->hook()->describe()),
               "\"; there is one communication hook, registered once"));
  }
  if (pass_ > 0) {
    refuse("register_comm_hook() after a backward(); register the hook before the first one");
  }
  average_->set_hook(std::move(hook));
}

std::shared_ptr<CommHook> Reducer::comm_hook() const {
  const std::lock_guard lock(mutex_);
  return average_->hook();
}

void Reducer::set_announce(Announce announce) {
  const std::lock_guard lock(mutex_);
  announce_ = std::move(announce);
}

void Reducer::stand_in(double factor) {
  Lock lock(mutex_);
  fail_on_error(lock, [&] {
    if (state_ == State::FAILED) std::rethrow_exception(failure_);
    if (options_.static_graph && !has_averaged_) {
      refuse("this rank has no inputs at all, so it cannot learn the graph that is declared static");
    }
    if (state_ == State::ACCUMULATING) transition(State::IDLE);
    gradients_->drop_gradients();
    declared_passes_ = options_.backward_passes_per_step - 1;
    stands_in_ = true;
    factor_ = [factor] { return factor; };
    begin_pass();
    end_pass(lock);
    stands_in_ = false;
  });
}

DistributedDataParallelStats Reducer::stats() const {
  const std::lock_guard lock(mutex_);
  return average_->stats();
}

std::string Reducer::bucket_table() const {
  const std::lock_guard lock(mutex_);
  return average_->table();
}

void Reducer::on_gradient(std::size_t index, const at::Tensor& incoming) {
  Lock lock(mutex_);
  if ((state_ == State::IDLE || state_ == State::FAILED) && !claims_->begins_pass(index)) return;
  fail_on_error(lock, [&] {
    join_pass();
    accept(index, incoming);
  });
}

void Reducer::on_end_of_backward(std::uint64_t pass) {
  Lock lock(mutex_);
  if (pass != pass_ || (state_ != State::COLLECTING && state_ != State::ACCUMULATING)) return;
  // A backward inside this one has ended (reentrant checkpointing): more gradients may come, unless all have.
  if (AutogradHooks::ended_inside_another_backward() && !gradients_->arrivals().all_arrived()) return;
  fail_on_error(lock, [&] { end_pass(lock); });
}

// It may have gone through a graph without parameters of ours, as that of a gradient penalty.
void Reducer::on_end_of_backward_through_outputs() {
  Lock lock(mutex_);
  const bool in_pass = state_ == State::COLLECTING || state_ == State::ACCUMULATING;
  if (!in_pass || pass_thread_ != std::this_thread::get_id()) return;
  if (AutogradHooks::ended_inside_another_backward()) return;
  fail_on_error(lock, [&] { end_pass(lock); });
}

// ------------------------------------------------------------------------------------------------- failure
// and state

template <typename Body> void Reducer::fail_on_error(Lock& lock, Body body) {
  try {
    body();
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    fail(std::current_exception());
    throw;
  }
}

void Reducer::refuse(const std::string& reason) const { DDP_WRAPPER.refuse(group_, reason); }

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
  claims_->set_in_pass(state_ != State::IDLE && state_ != State::FAILED);
}

// ------------------------------------------------------------------------------------------------------ one
// backward

// Finds or begins the backward pass that a gradient belongs to.
void Reducer::join_pass() {
  if (state_ == State::FAILED) std::rethrow_exception(failure_);
  if (AutogradHooks::is_creating_graph()) {
    refuse(
        "backward(create_graph = true) would leave gradients whose graph knows nothing of the other "
        "ranks; take the inner gradient with torch::autograd::grad(..., create_graph = true) and call "
        "backward() on the "
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
      refuse("two threads are in backward() on one model; take turns, or wrap one model for each");
    }
    follow_backward(backward);
  }
}

void Reducer::begin_pass() {
  declared_passes_ += synchronised_ ? 1 : 0;
  const bool last_pass = synchronised_ && declared_passes_ == options_.backward_passes_per_step;
  transition(last_pass ? State::COLLECTING : State::ACCUMULATING);
  if (last_pass && announce_ && !stands_in_) factor_ = announce_();
  ++pass_;
  average_->begin_pass(factor_ ? 0 : left_forwards_.count());  // in a join, ranks may have fewer steps
  gradients_->begin_pass(*claims_);
  const auto reached = std::exchange(reached_, std::nullopt);
  if (!last_pass) return;
  gradients_->leave_out_unused();
  if (!reached) return;
  for (std::size_t i = 0; i < reached->size(); ++i) {
    if (!(*reached)[i]) gradients_->leave_out(i);
  }
}

void Reducer::follow_backward(int backward) {
  last_backward_ = backward;
  AutogradHooks::at_end_of_backward([weak = weak_from_this(), pass = pass_] {
    if (const auto self = weak.lock()) self->on_end_of_backward(pass);
  });
}

void Reducer::accept(std::size_t index, const at::Tensor& incoming) {
  if (state_ == State::ACCUMULATING) return gradients_->add(index, incoming);
  if (const auto mistake = gradients_->too_late(index, average_->started())) {
    refuse(*mistake + (options_.static_graph
                           ? ". Train it without static_graph"
                           : ": it takes part outside the outputs of forward(), or in several "
                             "checkpointed blocks (see static_graph), or an earlier "
                             "backward() ended with an exception"));
  }
  gradients_->add(index, incoming);
  average_->start_complete();
}

// --------------------------------------------------------------------------------------------------- end of
// backward

void Reducer::refuse_missing(const std::vector<std::string>& names) const {
  if (names.empty()) return;
  const auto frozen = gradients_->frozen_since();
  const auto shared = claims_->first_shared();
  if (options_.static_graph) {
    refuse(str(names.size() == 1 ? "parameter " : "parameters ", list_of(names),
               " got fewer gradients in this backward() than in the first, but the graph was declared "
               "static. Take the same path in every step, or use find_unused_parameters in place of "
               "static_graph"));
  }
  refuse(str(
      names.size() == 1 ? "parameter " : "parameters ", list_of(names), " got no gradient in this backward()",
      options_.backward_passes_per_step > 1 ? " nor in the passes declared before it" : "",
      frozen ? str("; ", *frozen) : "",
      shared ? str(". Another wrapper has ", in_quotes(gradients_->name(*shared)),
                   ", too: run backward() of one before forward() of the other, or one backward() of the "
                   "sum of their losses")
             : "",
      ". Make the loss depend on every parameter on every rank; or freeze what is not trained with "
      "requires_grad_(false) before wrapping; or set find_unused_parameters; or, if one step takes "
      "several backward passes, set backward_passes_per_step"));
}

void Reducer::end_pass(Lock& lock) {
  gradients_->end_pass();
  average_->clock().backward_ended(now());
  if (state_ == State::COLLECTING) {
    average(lock);
  } else {
    transition(State::IDLE);
  }
}

// A rank that misses gradients takes part with zeros before it says so: by then all ranks have come through
// this backward, so that each of them can find and name what it misses itself.
void Reducer::average(Lock& lock) {
  const bool learns_graph = options_.static_graph && !has_averaged_;
  const bool finds_unused = options_.find_unused_parameters || learns_graph;
  const bool may_miss = finds_unused || stands_in_;
  const auto missing = may_miss ? std::vector<std::string>() : gradients_->without_gradient();
  for (std::size_t i = 0; i < gradients_->size(); ++i) gradients_->leave_out(i);
  average_->start_complete();
  const bool learns_order = !has_averaged_ && !options_.find_unused_parameters;
  average_->start_exchange(finds_unused, learns_order);
  transition(State::WAITING);
  lock.unlock();
  try {
    average_->wait();
    const double factor = factor_ ? std::exchange(factor_, {})() : 1.0;
    if (factor != 1) average_->scale(factor);
  } catch (const Aborted&) {  // perhaps by a peer that misses the same
    if (missing.empty()) throw;
  }
  lock.lock();
  if (state_ == State::FAILED) std::rethrow_exception(failure_);
  average_->clock().averaged(now());
  refuse_missing(missing);
  if (learns_graph) gradients_->arrivals().learn_graph();
  average_->settle();
  has_averaged_ = true;
  declared_passes_ = 0;
  transition(State::IDLE);
}

}  // namespace lockstep

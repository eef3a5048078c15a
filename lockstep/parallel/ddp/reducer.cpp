#include "lockstep/parallel/ddp/reducer.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/parallel/ddp/ddp_wrapper.h"
#include "lockstep/parallel/ddp/gradient_average.h"
#include "lockstep/parallel/ddp/virtual_turns.h"
#include "lockstep/parallel/gradients/model_gradients.h"

namespace lockstep {
namespace {

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

std::vector<at::Tensor> tensors_of(const NamedTensors& dense, const NamedTensors& sparse) {
  std::vector<at::Tensor> tensors;
  for (const NamedTensors* part : {&dense, &sparse}) {
    for (const auto& [name, tensor] : *part) tensors.push_back(tensor);
  }
  return tensors;
}

// Returns why a backward without gradients for these parameters is refused.
std::string words_of_missing(const std::vector<std::string>& names, const ReducerOptions& options,
                             const ModelGradients& gradients, const ParameterClaims& claims) {
  const std::string who = str(names.size() == 1 ? "parameter " : "parameters ", list_of(names));
  if (options.static_graph) {
    return who +
           " got fewer gradients in this backward() than in the first, but the graph was declared "
           "static. Take the same path in every step, or use find_unused_parameters in place of "
           "static_graph";
  }
  const auto frozen = gradients.frozen_since();
  const auto shared = claims.first_shared();
  return str(who, " got no gradient in this backward()",
             options.backward_passes_per_step > 1 ? " nor in the passes declared before it" : "",
             frozen ? str("; ", *frozen) : "",
             shared ? str(". Another wrapper has ", in_quotes(gradients.name(*shared)),
                          ", too: run backward() of one before forward() of the other, or one backward() of "
                          "the sum of their losses")
                    : "",
             ". Make the loss depend on every parameter on every rank; or freeze what is not trained with "
             "requires_grad_(false) before wrapping; or set find_unused_parameters; or, if one step takes "
             "several backward passes, set backward_passes_per_step");
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
  return std::shared_ptr<Reducer>(new Reducer(dense, sparse, group, options));
}

// The hooks are a member and are destroyed with the Reducer, so a plain pointer is enough.
Reducer::Reducer(const NamedTensors& dense, const NamedTensors& sparse, const ProcessGroup& group,
                 const ReducerOptions& options)
    : group_(group),
      options_(options),
      claims_(tensors_of(dense, sparse)),
      state_(group, claims_),
      gradients_(std::make_shared<ModelGradients>(
          DDP_WRAPPER, group, dense, sparse,
          bucket_plan(sizes_of(dense), reverse_order(dense.size()), options.caps))),
      average_(std::make_shared<GradientAverage>(*gradients_, group, options.caps, options.model)),
      passes_(options.backward_passes_per_step),
      forwards_(dense.size() + sparse.size()),
      turns_(options.virtual_ranks ? std::make_shared<VirtualTurns>(*options.virtual_ranks, group.rank(),
                                                                    tensors_of(dense, sparse))
                                   : nullptr),
      hooks_(tensors_of(dense, sparse),
             [this](std::size_t index, const at::Tensor& incoming) { on_gradient(index, incoming); }) {
  if (options_.static_graph) gradients_->arrivals().watch_graph();
  if (turns_) average_->set_hook(turns_->sum());
}

// ---- entry points

void Reducer::before_forward(const std::optional<std::string>& mistake) {
  Lock lock(mutex_);
  fail_on_error(lock, [&] {
    state_.rethrow_failure();
    gradients_->end_pass();  // of a backward that an exception left
    if (state_.is(State::ACCUMULATING)) state_.transition(State::IDLE);  // likewise, on this rank alone
    if (!state_.is(State::IDLE)) {
      refuse(
          "forward() while a backward() of this model has not ended: an exception ended it early on this "
          "rank, so its gradients were not averaged, or another thread is still in it");
    }
    gradients_->refuse_changed();
    if (mistake) refuse(*mistake);
    hooks_.renew();
    if (!c10::GradMode::is_enabled()) return;
    claims_.forward_begins();
    average_->clock().forward_begins(now());
  });
}

void Reducer::after_forward() {
  const std::lock_guard lock(mutex_);
  average_->clock().forward_ended(now());
}

bool Reducer::wants_outputs() const {
  const std::lock_guard lock(mutex_);
  return (options_.find_unused_parameters || options_.static_graph) && passes_.is_synchronised();
}

void Reducer::note_outputs(const std::optional<std::vector<at::Tensor>>& outputs) {
  if (options_.static_graph) {
    if (!outputs) return;
    return AutogradHooks::at_end_of_backward_through(*outputs, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->on_end_of_backward_through_outputs();
    });
  }
  const std::vector<bool> reachable = outputs ? hooks_.reachable_from(*outputs) : std::vector<bool>();
  const std::lock_guard lock(mutex_);
  if (outputs) {
    forwards_.reach(reachable);
  } else {
    forwards_.reach_all();
  }
}

void Reducer::take_part_if_unreached() {
  Lock lock(mutex_);
  if (!forwards_.is_none_reached() || !gradients_->any_requires_grad()) return;
  fail_on_error(lock, [&] {
    begin_pass();
    end_pass(lock);
  });
}

bool Reducer::set_synchronised(bool on) {
  const std::lock_guard lock(mutex_);
  return passes_.set_synchronised(on);
}

bool Reducer::is_synchronised() const {
  const std::lock_guard lock(mutex_);
  return passes_.is_synchronised();
}

void Reducer::register_comm_hook(std::shared_ptr<CommHook> hook) {
  const std::lock_guard lock(mutex_);
  if (average_->hook()) {
    refuse(str("register_comm_hook() was called before, for \"", printable(average_->hook()->describe()),
               "\"; there is one communication hook, registered once"));
  }
  if (passes_.number() > 0) {
    refuse("register_comm_hook() after a backward(); register the hook before the first one");
  }
  average_->set_hook(std::move(hook));
}

void Reducer::set_announce(JoinedAverage::Announce announce) {
  const std::lock_guard lock(mutex_);
  joined_.set_announce(std::move(announce));
}

void Reducer::stand_in(double factor) {
  Lock lock(mutex_);
  fail_on_error(lock, [&] {
    state_.rethrow_failure();
    if (options_.static_graph && !passes_.has_averaged()) {
      refuse("this rank has no inputs at all, so it cannot learn the graph that is declared static");
    }
    if (state_.is(State::ACCUMULATING)) state_.transition(State::IDLE);
    gradients_->drop_gradients();
    passes_.pass_over_declared();
    joined_.stand_in(factor);
    begin_pass();
    end_pass(lock);
    joined_.end_stand_in();
  });
}

void Reducer::on_turn(TurnEvent event, int virtual_rank) {
  const std::lock_guard lock(mutex_);
  if (const auto mistake = turns_->on(event, virtual_rank, gradients_->arrivals())) refuse(*mistake);
}

void Reducer::on_gradient(std::size_t index, const at::Tensor& incoming) {
  Lock lock(mutex_);
  if ((state_.is(State::IDLE) || state_.is(State::FAILED)) && !claims_.begins_pass(index)) return;
  fail_on_error(lock, [&] {
    join_pass();
    accept(index, incoming);
  });
}

void Reducer::on_end_of_backward(std::uint64_t pass) {
  Lock lock(mutex_);
  if (pass != passes_.number() || !state_.is_in_backward()) return;
  // A backward inside this one has ended (reentrant checkpointing). More gradients may arrive, unless all
  // have.
  if (AutogradHooks::ended_inside_another_backward() && !gradients_->arrivals().all_arrived()) return;
  fail_on_error(lock, [&] { end_pass(lock); });
}

// The backward may have passed through a graph without parameters of this model, as that of a gradient
// penalty.
void Reducer::on_end_of_backward_through_outputs() {
  Lock lock(mutex_);
  if (!state_.is_in_backward() || !passes_.is_on_this_thread()) return;
  if (AutogradHooks::ended_inside_another_backward()) return;
  fail_on_error(lock, [&] { end_pass(lock); });
}

// ---- failure and state

template <typename Body> void Reducer::fail_on_error(Lock& lock, Body body) {
  try {
    body();
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    state_.fail(std::current_exception());
    throw;
  }
}

void Reducer::refuse(const std::string& reason) const { DDP_WRAPPER.refuse(group_, reason); }

// ---- one backward

// Finds or begins the backward pass that a gradient belongs to.
void Reducer::join_pass() {
  state_.rethrow_failure();
  if (AutogradHooks::is_creating_graph()) {
    refuse(
        "backward(create_graph = true) would leave gradients whose graph knows nothing of the other "
        "ranks; take the inner gradient with torch::autograd::grad(..., create_graph = true) and call "
        "backward() on the "
        "outer loss");
  }
  const int backward = AutogradHooks::current_backward();
  if (state_.is(State::IDLE)) {
    begin_pass();
  } else if (passes_.is_followed(backward)) {
    return;
  } else if (state_.is(State::WAITING) || !passes_.is_on_this_thread()) {
    // Autograd runs a backward inside another one on the same thread. So another thread means another caller.
    refuse("two threads are in backward() on one model; take turns, or wrap one model for each");
  }
  passes_.follow(backward);
  AutogradHooks::at_end_of_backward([weak = weak_from_this(), pass = passes_.number()] {
    if (const auto self = weak.lock()) self->on_end_of_backward(pass);
  });
}

void Reducer::begin_pass() {
  const bool averages = passes_.begin();
  if (turns_) {
    if (const auto shared = claims_.first_shared()) {
      refuse(str("another wrapper has parameter ", in_quotes(gradients_->name(*shared)),
                 ", too, which is not possible with virtual ranks: wrap one model that has both"));
    }
    if (const auto mistake = turns_->begin_pass(averages)) refuse(*mistake);
  }
  state_.transition(averages ? State::COLLECTING : State::ACCUMULATING);
  if (averages) joined_.begin();
  // in a join, ranks may have different numbers of steps
  average_->begin_pass(joined_.is_joined() ? 0 : forwards_.left().count());
  gradients_->begin_pass(claims_);
  const std::vector<std::size_t> unreached = forwards_.take_unreached();
  if (!averages) return;
  gradients_->leave_out_unused();
  for (const std::size_t parameter : unreached) gradients_->leave_out(parameter);
}

void Reducer::accept(std::size_t index, const at::Tensor& incoming) {
  if (state_.is(State::ACCUMULATING)) return gradients_->add(index, incoming);
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

// ---- end of backward

void Reducer::end_pass(Lock& lock) {
  gradients_->end_pass();
  average_->clock().backward_ended(now());
  if (state_.is(State::COLLECTING)) {
    average(lock);
  } else {
    state_.transition(State::IDLE);
  }
}

// A rank that misses gradients takes part with zeros before it reports them. By then all ranks have finished
// this backward, so that each of them can find and name its own missing gradients.
void Reducer::average(Lock& lock) {
  const bool learns_graph = options_.static_graph && !passes_.has_averaged();
  const bool finds_unused = options_.find_unused_parameters || learns_graph;
  const bool may_miss = finds_unused || joined_.stands_in();
  const bool is_last_turn = !turns_ || turns_->is_last_turn();
  const auto missing = may_miss ? std::vector<std::string>() : gradients_->without_gradient();
  for (std::size_t i = 0; i < gradients_->size(); ++i) gradients_->leave_out(i);
  average_->start_complete();
  if (turns_) turns_->note_used(gradients_->arrivals());
  const bool learns_order = !passes_.has_averaged() && !options_.find_unused_parameters;
  if (is_last_turn) average_->start_exchange(finds_unused, learns_order);
  state_.transition(State::WAITING);
  lock.unlock();
  try {
    average_->wait();
    const double factor = joined_.take_factor();
    if (factor != 1) average_->scale(factor);
  } catch (const Aborted&) {  // perhaps by a peer that misses the same gradients
    if (missing.empty()) throw;
  }
  lock.lock();
  state_.rethrow_failure();
  if (is_last_turn) average_->clock().averaged(now());
  if (!missing.empty()) refuse(words_of_missing(missing, options_, *gradients_, claims_));
  if (learns_graph) gradients_->arrivals().learn_graph();
  if (is_last_turn) {
    average_->settle();
    passes_.averaged();
  } else {
    average_->end_turn();
    passes_.turn_ended();
  }
  state_.transition(State::IDLE);
}

}  // namespace lockstep

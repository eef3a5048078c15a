#include "lockstep/parallel/ddp/reducer.h"

#include <ATen/ops/zeros.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/fail_point.h"
#include "lockstep/base/str.h"
#include "lockstep/tensor/collectives.h"

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

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return known.what();
  } catch (...) {
    return "an exception of unknown type";
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
    : group_(group), options_(options) {
  make_buckets(parameters);
}

void Reducer::make_buckets(const NamedTensors& parameters) {
  std::vector<BucketParameter> sizes;
  for (const auto& [name, tensor] : parameters) {
    sizes.push_back({static_cast<std::size_t>(tensor.numel()), dtype_of(tensor.scalar_type())});
  }
  const BucketPlan plan = bucket_plan(sizes, reverse_order(sizes.size()), options_.caps);
  std::vector<std::optional<Parameter>> placed(parameters.size());
  for (const BucketSpec& spec : plan) {
    const auto type = parameters[spec.entries.front().parameter].second.scalar_type();
    Bucket bucket{.flat = shared_empty({static_cast<std::int64_t>(spec.elements)}, type, group_)};
    for (const BucketEntry& entry : spec.entries) {
      const auto& [name, tensor] = parameters[entry.parameter];
      placed[entry.parameter] =
          Parameter{.slot = GradientSlot(name, tensor, bucket.flat, entry.offset), .bucket = buckets_.size()};
    }
    stats_.bucket_bytes += bucket.flat.nbytes();
    buckets_.push_back(std::move(bucket));
  }
  stats_.buckets = buckets_.size();
  for (auto& parameter : placed) parameters_.push_back(std::move(*parameter));
}

// ------------------------------------------------------------------------------------------------- entry points

void Reducer::before_forward() {
  Lock lock(mutex_);
  fail_on_error(lock, [&] {
    if (state_ == State::FAILED) std::rethrow_exception(failure_);
    if (state_ == State::ACCUMULATING) transition(State::IDLE);  // left by an exception, on this rank alone
    if (state_ != State::IDLE) {
      refuse(
          "forward() while a backward() of this model has not ended: an exception ended it early on this "
          "rank, "
          "so its gradients were not averaged, or another thread is still in it");
    }
    refuse_changed();
  });
}

bool Reducer::wants_outputs() const {
  const std::lock_guard lock(mutex_);
  return options_.find_unused_parameters && synchronised_;
}

void Reducer::note_outputs(const std::vector<at::Tensor>& outputs) {
  const std::vector<bool> reachable = hooks_->reachable_from(outputs);
  const std::lock_guard lock(mutex_);
  if (!reached_) reached_.emplace(parameters_.size(), false);
  for (std::size_t i = 0; i < reachable.size(); ++i) (*reached_)[i] = (*reached_)[i] || reachable[i];
}

void Reducer::note_unknown_outputs() {
  const std::lock_guard lock(mutex_);
  reached_.emplace(parameters_.size(), true);
}

void Reducer::take_part_if_unreached() {
  Lock lock(mutex_);
  const bool any_reached =
      !reached_ || std::find(reached_->begin(), reached_->end(), true) != reached_->end();
  const bool any_wanted = std::any_of(parameters_.begin(), parameters_.end(),
                                      [](const Parameter& p) { return p.slot.requires_grad(); });
  if (any_reached || !any_wanted) return;
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
  return stats_;
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
  if (AutogradHooks::ended_inside_another_backward() && arrived_ < parameters_.size()) return;
  fail_on_error(lock, [&] { end_pass(lock); });
}

// ---------------------------------------------------------------------------------------------- failure and state

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
    group_.abort(text_of(error));
  } catch (...) {  // the error that led here matters more; peers still have their deadline
  }
}

void Reducer::transition(State next) {
  const bool drawn = next == State::FAILED || (state_ == State::IDLE && next == State::COLLECTING) ||
                     (state_ == State::IDLE && next == State::ACCUMULATING) ||
                     (state_ == State::ACCUMULATING && next == State::IDLE) ||
                     (state_ == State::COLLECTING && next == State::WAITING) ||
                     (state_ == State::WAITING && next == State::IDLE);
  if (!drawn) {
    throw InternalError(str("DDP reducer: no transition from state ", static_cast<int>(state_), " to ",
                            static_cast<int>(next)));
  }
  state_ = next;
}

void Reducer::refuse(const std::string& what) const {
  throw InvalidArgument(str("DistributedDataParallel on group \"", group_.name(), "\", rank ", group_.rank(),
                            " of ", group_.size(), ": ", what));
}

// ------------------------------------------------------------------------------------------------- one backward

// Finds or begins the backward pass that a gradient belongs to.
void Reducer::join_pass() {
  if (state_ == State::FAILED) std::rethrow_exception(failure_);
  if (AutogradHooks::is_creating_graph()) {
    refuse(
        "backward(create_graph = true) would leave gradients whose graph knows nothing of the other ranks; "
        "take the "
        "inner gradient with torch::autograd::grad(..., create_graph = true) and call backward() on the "
        "outer loss");
  }
  const int backward = AutogradHooks::current_backward();
  if (state_ == State::IDLE) {
    begin_pass();
    pass_thread_ = std::this_thread::get_id();
    last_backward_ = backward;
    follow_backward();
  } else if (backward != last_backward_) {
    // Autograd runs a backward inside another one on the same thread, so another thread means another caller.
    if (state_ == State::WAITING || pass_thread_ != std::this_thread::get_id()) {
      refuse("two threads are in backward() on one model; take turns, or wrap one model for each");
    }
    last_backward_ = backward;
    follow_backward();
  }
}

void Reducer::begin_pass() {
  declared_passes_ += synchronised_ ? 1 : 0;
  const bool last_pass = synchronised_ && declared_passes_ == options_.backward_passes_per_step;
  transition(last_pass ? State::COLLECTING : State::ACCUMULATING);
  ++pass_;
  arrived_ = 0;
  next_bucket_ = 0;
  for (Bucket& bucket : buckets_) bucket.missing = 0;
  for (Parameter& parameter : parameters_) {
    parameter.arrived = parameter.counted = false;
    ++buckets_[parameter.bucket].missing;
  }
  if (state_ == State::COLLECTING) leave_out_unreached();
  reached_.reset();
}

void Reducer::follow_backward() {
  AutogradHooks::at_end_of_backward([weak = weak_from_this(), pass = pass_] {
    if (const auto self = weak.lock()) self->on_end_of_backward(pass);
  });
}

void Reducer::accept(std::size_t index) {
  Parameter& parameter = parameters_[index];
  if (state_ == State::ACCUMULATING) {
    parameter.used = true;
    arrived_ += parameter.arrived ? 0 : 1;
    parameter.arrived = true;
    take(parameter);
    return;
  }
  if (parameter.arrived || (parameter.counted && parameter.bucket < next_bucket_)) {
    refuse(str(
        "parameter \"", printable(parameter.slot.name()), "\" got ",
        parameter.arrived ? "a second gradient in one backward()" : "a gradient after it was found unused",
        ": it takes part outside the outputs of forward(), or in several checkpointed blocks, or an earlier "
        "backward() ended with an exception"));
  }
  parameter.used = parameter.arrived = true;
  ++arrived_;
  take(parameter);
  count(parameter);
  start_complete_buckets();
}

void Reducer::take(Parameter& parameter) {
  if (const auto refusal = parameter.slot.refusal()) {
    refuse(str("parameter \"", printable(parameter.slot.name()), "\": ", *refusal));
  }
  stats_.bytes_copied += parameter.slot.take_gradient();
}

void Reducer::count(Parameter& parameter) {
  if (parameter.counted) return;
  parameter.counted = true;
  --buckets_[parameter.bucket].missing;
}

// This backward brings the parameter no gradient: what earlier ones left is what this rank contributes.
void Reducer::leave_out(Parameter& parameter) {
  if (parameter.used && parameter.slot.has_gradient()) {
    take(parameter);
  } else {
    parameter.slot.contribute_nothing_new();
  }
  count(parameter);
}

void Reducer::leave_out_unreached() {
  if (!reached_) return;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!(*reached_)[i]) leave_out(parameters_[i]);
  }
}

void Reducer::start_complete_buckets() {
  while (next_bucket_ < buckets_.size() && buckets_[next_bucket_].missing == 0) {
    Bucket& bucket = buckets_[next_bucket_];
    bucket.work = all_reduce(bucket.flat, ReduceOp::AVG, group_, /*async_op=*/true);
    ++next_bucket_;
    ++stats_.buckets_started;
    const auto waits = [](const Bucket& other) { return other.missing > 0; };
    stats_.buckets_overlapped += std::any_of(buckets_.begin(), buckets_.end(), waits) ? 1 : 0;
    if (next_bucket_ == 1 && buckets_.size() > 1) fail_point("ddp.mid_reduction");
  }
}

// ------------------------------------------------------------------------------------------------ end of backward

// libtorch drops the hooks of a parameter whose dtype changes, so this must be noticed before backward.
void Reducer::refuse_changed() const {
  for (const Parameter& parameter : parameters_) {
    if (const auto change = parameter.slot.change()) {
      refuse(str("parameter \"", printable(parameter.slot.name()), "\" ", *change));
    }
  }
}

void Reducer::refuse_missing() const {
  std::vector<std::string> names;
  for (const Parameter& parameter : parameters_) {
    if (!parameter.arrived && !(parameter.used && parameter.slot.has_gradient()))
      names.push_back(parameter.slot.name());
  }
  if (names.empty()) return;
  refuse(str(
      names.size() == 1 ? "parameter " : "parameters ", list_of(names), " got no gradient in this backward()",
      options_.backward_passes_per_step > 1 ? " nor in the passes declared before it" : "",
      ". Make the loss depend on every parameter on every rank; or freeze what is not trained with "
      "requires_grad_(false) before wrapping; or set find_unused_parameters; or, if one step takes several "
      "backward passes, set backward_passes_per_step"));
}

void Reducer::end_pass(Lock& lock) {
  if (state_ == State::COLLECTING) {
    average(lock);
  } else {
    transition(State::IDLE);
  }
}

void Reducer::average(Lock& lock) {
  if (!options_.find_unused_parameters) refuse_missing();
  for (Parameter& parameter : parameters_) {
    if (!parameter.counted) leave_out(parameter);
  }
  start_complete_buckets();
  const at::Tensor used = options_.find_unused_parameters ? used_map() : at::Tensor();
  Work all_used = used.defined() ? all_reduce(used, ReduceOp::MAX, group_, /*async_op=*/true) : Work();
  transition(State::WAITING);
  lock.unlock();
  for (Bucket& bucket : buckets_) bucket.work.wait();
  all_used.wait();
  lock.lock();
  if (state_ == State::FAILED) std::rethrow_exception(failure_);
  settle(used);
  ++stats_.reductions;
  transition(State::IDLE);
}

at::Tensor Reducer::used_map() const {
  at::Tensor used = at::zeros({static_cast<std::int64_t>(parameters_.size())}, at::kByte);
  auto* flags = used.data_ptr<std::uint8_t>();
  for (const Parameter& parameter : parameters_) *flags++ = parameter.used ? 1 : 0;
  return used;
}

void Reducer::settle(const at::Tensor& used_by_any_rank) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const bool used = !used_by_any_rank.defined() || used_by_any_rank.data_ptr<std::uint8_t>()[i] != 0;
    parameters_[i].slot.settle(used);
    parameters_[i].used = false;
  }
  for (Bucket& bucket : buckets_) bucket.work = Work();
  declared_passes_ = 0;
}

}  // namespace lockstep

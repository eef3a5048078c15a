#include "lockstep/compat/c10d/group_work.h"

#include <ATen/core/jit_type.h>

#include <algorithm>
#include <utility>

#include "lockstep/compat/c10d/ended_tensors.h"
#include "lockstep/compat/c10d/failure.h"
#include "lockstep/tensor/tensor_call.h"

namespace lockstep::compat::torch_backend {

using std::chrono::milliseconds;

GroupWork::GroupWork(const ProcessGroup& group, const GroupCall& call, CoreWorks works,
                     std::shared_ptr<Completion> completion, const std::optional<Tensors>& inputs)
    : c10d::Work(group.rank(), call.type, call.title, inputs),
      group_(group),
      call_(call),
      works_(std::move(works)),
      completion_(std::move(completion)) {}

// Returns true if this thread is to end the call, and false if the call has ended.
bool GroupWork::claim() {
  std::unique_lock lock(mutex_);
  cv_.wait(lock, [&] { return completed_ || !is_claimed_; });
  if (completed_) return false;
  is_claimed_ = true;
  return true;
}

void GroupWork::wait_for_core(milliseconds timeout) {
  for (lockstep::Work& work : works_) {
    if (timeout > milliseconds::zero()) {
      work.wait(timeout);
    } else {
      work.wait();
    }
  }
}

void GroupWork::end(milliseconds timeout) {
  if (!claim()) return;
  std::exception_ptr error;
  try {
    wait_for_core(timeout);
  } catch (...) {
    error = as_torch(std::current_exception(), timeout > milliseconds::zero() ? timeout : call_.usual);
  }
  finish(error);
  drop_ended_tensors();
}

bool GroupWork::wait(milliseconds timeout) {
  end(timeout > milliseconds::zero() ? timeout : call_.timeout);
  if (exception_) std::rethrow_exception(exception_);
  return true;
}

bool GroupWork::isCompleted() {
  {
    const std::lock_guard lock(mutex_);
    if (completed_) return true;
    if (is_claimed_) return false;
    is_claimed_ = true;
  }
  bool all = true;
  std::exception_ptr error;
  try {
    for (const lockstep::Work& work : works_) {
      all = work.is_completed() && all;
      if (!error && work.exception()) error = as_torch(work.exception(), call_.usual);
    }
  } catch (...) {
    error = std::current_exception();
  }
  if (all || error) {
    finish(error);
  } else {
    const std::lock_guard lock(mutex_);
    is_claimed_ = false;
    cv_.notify_all();
  }
  drop_ended_tensors();
  return all || error;
}

// The core's number is that of the rank in the job; torch asks for the rank in the group.
int GroupWork::sourceRank() const {
  const int rank = works_.empty() ? -1 : works_.front().source_rank();
  const auto& ranks = group_.ranks();
  const auto found = std::find(ranks.begin(), ranks.end(), rank);
  return found == ranks.end() ? -1 : static_cast<int>(found - ranks.begin());
}

GroupWork::Tensors GroupWork::result() {
  Tensors all;
  for (const lockstep::Work& work : works_) {
    for (at::Tensor& tensor : lockstep::result(work)) all.push_back(std::move(tensor));
  }
  return all;
}

c10::intrusive_ptr<c10::ivalue::Future> GroupWork::getFuture() {
  bool is_over = false;
  {
    const std::lock_guard lock(mutex_);
    if (future_) return future_;
    future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    is_over = completed_;
  }
  if (is_over) {
    complete_future();
  } else {
    completion_->add(c10::intrusive_ptr<GroupWork>::unsafe_reclaim_from_nonowning(this));
  }
  return future_;
}

void GroupWork::complete_future() {
  end(call_.timeout);
  if (exception_) {
    future_->setError(exception_);
  } else {
    future_->markCompleted(c10::IValue(result()));
  }
}

}  // namespace lockstep::compat::torch_backend

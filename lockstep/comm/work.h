// Work: an operation that was started and may still be running.
//
//   Work work = comm::all_reduce(group, std::span<float>(gradients), ReduceOp::SUM, /*async_op=*/true);
//   compute_something_else();
//   work.wait();                                     // now `gradients` holds the sum
//
// Blocks      wait() until this rank's buffers hold the result; it helps with the operation meanwhile. It names the ranks it
//             waits for through the log sink after 5 s and throws Timeout after 30 minutes without progress (both are
//             settings of the group); wait(timeout) sets the latter for this call.
// Fails       wait() throws the error of the operation: PeerLost, Mismatch, Timeout, Aborted. The group is then closed.
// Lifetime    buffers must stay alive and untouched until the work is done, even if the Work is dropped: later calls on the
//             group complete it. Copies of a Work are the same work.
// Threads     may be waited for on any thread; one at a time.
#pragma once

#include <chrono>
#include <exception>
#include <memory>
#include <optional>

namespace lockstep {

// What a backend keeps per started operation. Backends derive from it; users hold a Work.
class WorkState {
 public:
  virtual ~WorkState() = default;
  // Returns when done, throws when failed. `timeout` without a value means the group's.
  virtual void wait(std::optional<std::chrono::nanoseconds> timeout) = 0;
  // Makes what progress is possible without waiting; true when done or failed.
  virtual bool poll() = 0;
  // The failure, if it failed; null while pending and after success.
  virtual std::exception_ptr exception() const = 0;
  // The rank a message was received from; -1 for everything but a finished recv.
  virtual int source_rank() const { return -1; }
};

class Work {
 public:
  Work() = default;  // a finished one
  explicit Work(std::shared_ptr<WorkState> state) : state_(std::move(state)) {}

  void wait() {
    if (state_) state_->wait(std::nullopt);
  }
  void wait(std::chrono::nanoseconds timeout) {
    if (state_) state_->wait(timeout);
  }
  bool is_completed() const { return !state_ || state_->poll(); }
  bool is_success() const { return is_completed() && exception() == nullptr; }
  std::exception_ptr exception() const { return state_ ? state_->exception() : nullptr; }
  int source_rank() const { return state_ ? state_->source_rank() : -1; }
  const std::shared_ptr<WorkState>& state() const { return state_; }  // null for a finished one

 private:
  std::shared_ptr<WorkState> state_;
};

}  // namespace lockstep

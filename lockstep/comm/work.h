// Work: an operation that was started and may still be running.
//
//   Work work = comm::all_reduce(group, std::span<float>(gradients), ReduceOp::SUM, /*async_op=*/true);
//   compute_something_else();
//   work.wait();                                     // now `gradients` holds the sum
//
// Blocks      wait() blocks until this rank's buffers hold the result. It helps with the operation
//             meanwhile. After 5 s it names the ranks it waits for through the log sink, and after 30
//             minutes without progress it throws Timeout. Both times are settings of the group;
//             wait(timeout) sets the second for this call.
// Fails       wait() throws the error of the operation: PeerLost, Mismatch, Timeout or Aborted. The group is
//             then closed.
// Lifetime    buffers must stay alive and untouched until the work is done or failed, or its group is
//             closed. That holds even if the Work is dropped, because later calls on the group complete the
//             operation. It also holds when an exception of the program unwinds past the buffers: keep them
//             outside the scope that may throw, or abort() the group before it leaves. The tensor forms keep
//             their tensors alive. Copies of a Work are the same work.
// Callbacks   run once, in the order they were added, on the thread whose wait() or is_completed() first
//             sees the work done or failed. They run before that call returns or throws, with no lock held,
//             and may call anything. A callback added later runs at once. No thread of the library runs
//             callbacks: if nobody asks, they never run. An exception from a callback leaves the call that
//             ran it; the callbacks behind it run at the next call.
// Threads     any thread may wait, one at a time.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "lockstep/base/visibility.h"

namespace LOCKSTEP_PUBLIC lockstep {

class Work;

// The state that a backend keeps for a started operation. Backends derive from it; programs hold a Work.
class WorkState {
 public:
  virtual ~WorkState() = default;
  // Returns when done, throws when failed. `timeout` without a value means the group's.
  virtual void wait(std::optional<std::chrono::nanoseconds> timeout) = 0;
  // Makes possible progress without waiting. Returns true when done or failed.
  virtual bool poll() = 0;
  // The failure, if it failed; null while pending and after success.
  virtual std::exception_ptr exception() const = 0;
  // The rank that a message was received from; -1 for everything but a finished recv.
  virtual int source_rank() const { return -1; }

 private:
  friend class Work;
  using Callback = std::function<void(const Work&)>;

  std::mutex callbacks_mutex_;
  // Callbacks that have not run; guarded by the mutex, as is what follows. A list, because an empty one
  // allocates nothing.
  std::list<Callback> callbacks_;
  bool seen_ = false;     // a call of a Work has seen the operation done or failed
  bool running_ = false;  // a callback is running, which may itself ask for the work
};

class Work {
 public:
  Work() = default;  // a finished work
  explicit Work(std::shared_ptr<WorkState> state) : state_(std::move(state)) {}

  void wait() { wait_for(std::nullopt); }
  void wait(std::chrono::nanoseconds timeout) { wait_for(timeout); }
  bool is_completed() const;
  bool is_success() const { return is_completed() && exception() == nullptr; }
  std::exception_ptr exception() const { return state_ ? state_->exception() : nullptr; }
  std::string error_text() const;  // text of exception(); empty if there is none
  int source_rank() const { return state_ ? state_->source_rank() : -1; }

  const std::shared_ptr<WorkState>& state() const { return state_; }  // null for a finished work

  // work.add_callback([](const Work& done) { if (done.exception()) ...; });
  void add_callback(std::function<void(const Work&)> callback) const;

 private:
  void wait_for(std::optional<std::chrono::nanoseconds> timeout) const;
  void run_callbacks() const;

  std::shared_ptr<WorkState> state_;
};

}  // namespace lockstep

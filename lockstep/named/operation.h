// Operation: a name that this rank has submitted. A program waits for it, or asks now and then.
//
//   const std::shared_ptr<Operation> sum = engine.submit({.request = request, .input = x, .output = x});
//   while (!sum->poll()) compute_a_little();
//   sum->wait();                                       // throws what went wrong
//
// Buffers     must stay alive and untouched until poll() is true or wait() has returned; `keep_alive` is held
//             until then.
// Results     ALLREDUCE and BROADCAST write to `output`. ALLGATHER, ALLTOALL and REDUCESCATTER, whose size
//             depends on other ranks, give memory of their own: result().
// Again       what Engine::prepare() made may be started any number of times, once after the other.
// Told        notify() calls a function when the operation ends, for programs whose threads must not wait.
// Threads     any. A thread that waits begins a cycle at once (engine.h).
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "lockstep/base/visibility.h"
#include "lockstep/named/request.h"

namespace lockstep {
namespace LOCKSTEP_PUBLIC named {

class Doorbell;

// What the operations of an engine have in common: where their waiters sleep.
struct Waiters {
  std::mutex mutex;
  std::condition_variable ended;
  std::atomic<int> count = 0;
  std::shared_ptr<Doorbell> bell;  // of the engine's thread
};

struct Submission {
  Request request;
  const void* input = nullptr;
  void* output = nullptr;  // ALLREDUCE and BROADCAST; may be the input
  std::shared_ptr<void> keep_alive = nullptr;
};

struct OperationResult {
  std::shared_ptr<void> memory;               // 64-byte aligned
  std::vector<std::int64_t> shape;            // of `memory`
  std::vector<std::int64_t> received_splits;  // ALLTOALL: rows from each rank of the set
  int number = -1;                            // JOIN: the last rank that joined. ADD_PROCESS_SET: the id
};

class Operation;
using Operations = std::vector<std::shared_ptr<Operation>>;

class Operation {
 public:
  Operation(Submission submission, std::shared_ptr<Waiters> waiters)
      : given_(std::move(submission)), waiters_(std::move(waiters)) {}

  const Request& request() const { return given_.request; }
  const void* input() const { return given_.input; }
  void* output() const { return given_.output; }

  // True when it is done or has failed.
  bool poll() const { return ended_.load(std::memory_order_acquire); }
  // Blocks until it is done. Throws its failure, each time: Mismatch, PeerLost, Timeout, Aborted,
  // InvalidArgument.
  void wait() const;
  // Calls `ended` once, when the operation is done or has failed: at once if it has, else on the engine's
  // thread, which it must not keep. `is_awaited`: begins a cycle at once, as wait() does. At most once a
  // start.
  void notify(std::function<void()> ended, bool is_awaited);
  // After wait().
  const OperationResult& result() const { return result_; }

  // For the engine. Takes the buffers; false, and nothing has changed, if it is under way.
  bool begin(const void* input, void* output);
  void cancel() { ended_.store(true); }  // it was begun, and the engine's thread has not seen it
  bool is_of(const std::shared_ptr<Waiters>& waiters) const { return waiters_ == waiters; }

  // For the engine's thread.
  OperationResult& own_result() { return result_; }
  CachedAgreement& cached() { return cached_; }
  // All of one engine end together, so that a thread that waits for them is woken once.
  static void end_all(const Operations& operations, const std::exception_ptr& failure);

 private:
  Submission given_;
  std::shared_ptr<Waiters> waiters_;
  OperationResult result_;
  std::exception_ptr failure_;
  CachedAgreement cached_;
  std::atomic<bool> ended_ = true;  // or has not begun
  std::function<void()> told_;      // guarded by the waiters' mutex, as is_awaited_
  bool is_awaited_ = false;
};

}  // namespace named
}  // namespace lockstep

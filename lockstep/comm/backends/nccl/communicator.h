// Communicator: one of NCCL's, from making it to aborting it. NCCL is told not to block (2.14), so that
// whatever it waits for can be given up.
//
//   auto comm = nccl::Communicator::make(library, id, rank, size, {deadline, [&] { hosts.check_peers(); }});
//   comm->launch(steps_of(request, rank, size), stream, patience);
//
// Threads: launch() by one at a time; check() and abort() by any, meanwhile too.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/comm/backends/nccl/calls.h"
#include "lockstep/comm/backends/nccl/library.h"

namespace lockstep::nccl {

// How long to wait for NCCL, and what to do while waiting: it throws if there is no sense in that any more.
struct Patience {
  Deadline deadline;
  std::function<void()> meanwhile;
};

class Communicator {
 public:
  // Collective over the `size` ranks that have the id. Throws DistBackendError, Timeout, and what
  // patience.meanwhile throws.
  static std::unique_ptr<Communicator> make(const Library& library, const UniqueId& id, int rank, int size,
                                            const Patience& patience);
  ~Communicator() { abort(); }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // All steps as one: none waits for another. Returns when they are in the stream. Throws as make(), and
  // Aborted.
  void launch(const std::vector<Step>& steps, CudaStream stream, const Patience& patience);
  // Throws DistBackendError, in the name of `function`, if NCCL has found since that something went wrong.
  void check(const char* function = "ncclCommGetAsyncError");
  // Ends what is under way here, without a result. Does not wait for other ranks.
  void abort();

 private:
  explicit Communicator(const Library& library) : library_(library) {}
  void expect_place(int rank, int size);
  // Calls it unless the communicator is gone; throws for any result but SUCCESS and IN_PROGRESS.
  void call(const char* function, const std::function<Result()>& call);
  void call_named(const char* const& function,
                  const std::function<Result()>& call);  // which may change the name
  void settle(const char* function, const Patience& patience);
  Result state();

  const Library& library_;
  std::mutex mutex_;
  Comm comm_ = nullptr;  // guarded by mutex_; null: aborted
};

}  // namespace lockstep::nccl

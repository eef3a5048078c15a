// Communicator: one communicator of NCCL, from its creation to its end. It is non-blocking (NCCL 2.14), so
// that every wait for NCCL can be given up.
//
//   auto comm = nccl::Communicator::make(library, id, rank, size, {deadline, [&] { hosts.check_peers(); }});
//   comm->launch(steps_of(request, rank, size), stream, patience);
//
// Threads: launch() by one thread at a time. check() and abort() by any thread, also during a launch.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/comm/backends/nccl/calls.h"
#include "lockstep/comm/backends/nccl/library.h"

namespace lockstep::nccl {

// How long to wait for NCCL, and a function to call meanwhile. The function throws if the wait is hopeless.
struct Patience {
  Deadline deadline;
  std::function<void()> meanwhile;
};

class Communicator {
 public:
  static constexpr std::chrono::seconds LIMIT{10};

  // Collective over the `size` ranks that have the id. Throws DistBackendError, Timeout, and what
  // patience.meanwhile throws.
  static std::unique_ptr<Communicator> make(const Library& library, const UniqueId& id, int rank, int size,
                                            const Patience& patience);
  ~Communicator() { abort(); }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Launches all steps together: none waits for another. Returns when they are in the stream. Throws the
  // errors of make(), and Aborted.
  void launch(const std::vector<Step>& steps, CudaStream stream, const Patience& patience);
  // Throws DistBackendError, in the name of `function`, if NCCL has found an error since.
  void check(const char* function = "ncclCommGetAsyncError");
  // Both return false if NCCL needs longer than LIMIT; it goes on in a thread of its own.
  //
  // Ends the operations that are under way here, without results. What this rank has sent, and another has
  // not received, is lost.
  bool abort();
  // The end after operations that have all ended here. On the device a send has ended when NCCL has its data,
  // and NCCL may still have to send it, so this waits until it has. NCCL may also wait for other ranks to do
  // the same.
  bool finish();

 private:
  explicit Communicator(const Library& library) : library_(library) {}
  void expect_place(int rank, int size);
  // Makes a call of NCCL unless the communicator was aborted. Throws for any result but SUCCESS and
  // IN_PROGRESS.
  void call(const char* function, const std::function<Result()>& call);
  void call_named(const char* const& function,
                  const std::function<Result()>& call);  // `call` may change `function`
  void settle(const char* function, const Patience& patience);
  bool end(void (*how)(const Api&, Comm));
  Result state();

  const Library& library_;
  std::mutex mutex_;
  Comm comm_ = nullptr;  // guarded by mutex_; null: aborted or finished
};

}  // namespace lockstep::nccl

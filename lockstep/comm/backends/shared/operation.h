// Operation: a started call. The program's Work points to it, and the group lists it while it is pending. A
// call that waits makes its operation on the stack. The operation moves to the heap if it is not done soon.
//
//   start() --post--> PENDING --try_advance() is true--> DONE
//                        |
//                        +--a failure is recorded, or the group is left--> FAILED
//
// advance() is called by every later start(), poll() and wait() on this group.
#pragma once

#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "lockstep/comm/backend.h"
#include "lockstep/comm/backends/shared/context.h"
#include "lockstep/comm/backends/shared/pending_operations.h"
#include "lockstep/comm/backends/shared/waitable.h"
#include "lockstep/comm/trace/flight_recorder.h"

namespace lockstep::shared {

class Operation : public WorkState, public Waitable {
 public:
  Operation(Context& context, PendingOperations& pending, Request&& request)
      : context_(&context), request_(std::move(request)), pending_(&pending) {}
  Operation(Operation&& other) noexcept
      : context_(other.context_),
        request_(std::move(other.request_)),
        ticket_(other.ticket_),
        pending_(other.pending_),
        state_(other.state_) {}
  ~Operation() override = default;

  void wait(std::optional<std::chrono::nanoseconds> timeout) override;
  bool poll() override;
  std::exception_ptr exception() const override;
  bool ready() override;

  std::string usual_cause() const override { return usual_cause_of_absence(request_.acting.purpose); }
  // The flight recorder's ticket of this call.
  void keep_record(const FlightRecorder::Ticket& ticket) { ticket_ = ticket; }
  // From here on the operation may outlive the caller's reference to the group.
  void keep_engine(std::shared_ptr<void> engine) { kept_engine_ = std::move(engine); }
  // With the lock held: spins for a moment and returns whether the operation is done. Throws its error if it
  // failed.
  bool done_soon(int spins);
  // With the lock held: does at most `slices` slices of work. Returns true when the operation is done or
  // failed.
  bool advance(std::size_t slices);
  // Called with the lock held, when the group failed or is left before the operation was done. Peers may
  // still use its memory.
  virtual void give_up() {}

 protected:
  // Returns true when this rank's part is over and its buffers are ready.
  virtual bool try_advance(std::size_t slices) = 0;

  Context* const context_;
  Request request_;
  FlightRecorder::Ticket ticket_;
  PendingOperations* const pending_;

 private:
  enum class State { PENDING, DONE, FAILED };

  void fail(std::exception_ptr error);

  std::shared_ptr<void> kept_engine_;
  State state_ = State::PENDING;  // guarded by the lock; so is the exception
  std::exception_ptr exception_;
};

}  // namespace lockstep::shared

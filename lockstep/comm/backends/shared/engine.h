// SharedEngine: process groups over memory that all ranks map. One engine serves two backends: `shm` (ranks are processes)
// and `thread` (ranks are threads of one process, for tests and ThreadSanitizer).
//
// There is no progress thread. A rank works on its own and others' operations inside the calls it makes anyway: a call that
// posts an operation also takes this rank's fair share of slices of earlier ones; a wait does whatever is left. A rank that
// is busy elsewhere stalls nobody, because all slices of an all_reduce may be reduced by any rank once all have posted.
//
//   start() --post--> PENDING --advance() is true--> DONE       life of an operation; advance() is called by every later
//                        |                                       start(), poll() and wait() on this group
//                        +--a failure is recorded--> FAILED
//
// A failure is recorded once, in the shared header, by whoever sees it first (dead peer, disagreement, timeout, abort), and
// thrown by every rank from then on.
#pragma once

#include <algorithm>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/backend.h"
#include "lockstep/comm/backends/segment/layout.h"
#include "lockstep/comm/backends/segment/rank_addresses.h"
#include "lockstep/comm/backends/segment/rank_memory.h"
#include "lockstep/comm/backends/shared/inbox.h"
#include "lockstep/comm/group/group_failure.h"
#include "lockstep/comm/trace/flight_recorder.h"

namespace lockstep::shared {

// What an engine knows about the other ranks besides shared memory.
class Peers {  // by rank in the world
 public:
  virtual ~Peers() = default;
  virtual bool alive(int rank) const = 0;
  virtual std::string detail(int rank) const = 0;  // "pid 4121" or nothing
  virtual bool stopped(int rank) const = 0;        // by SIGSTOP or a debugger
  // Whether every rank can read the private memory of every other; and reads it: false when the owner is not there any more.
  virtual bool lend_private_memory() const = 0;
  virtual bool read(int rank, std::uint64_t address, std::span<std::byte> to) const = 0;
};

struct Membership {
  int rank = 0;
  int size = 1;
  std::string group_name;
  std::string backend_name;
  std::vector<int> world_ranks;  // by rank; empty: the same
  std::vector<int> job_ranks;  // by rank of the world, where that is one machine of several; empty: the same
  std::shared_ptr<std::byte> control;               // a control segment, made for `size` ranks
  std::vector<std::shared_ptr<SharedMemory>> data;  // by rank
  std::shared_ptr<RankMemory> own;                  // of this rank's data
  std::shared_ptr<Peers> peers;
  std::shared_ptr<TraceMemory> trace;  // of this rank
  GroupOptions options;

  int world_rank(int of) const {
    return world_ranks.empty() ? of : world_ranks.at(static_cast<std::size_t>(of));
  }
  // What people call it.
  int job_rank(int of) const {
    const int in_world = world_rank(of);
    return job_ranks.empty() ? in_world : job_ranks.at(static_cast<std::size_t>(in_world));
  }
  std::vector<int> all_job_ranks() const;  // by rank; empty: the same
};

class Operation;

// Something a rank waits for. All functions are called with the engine's lock held.
class Waitable {
 public:
  virtual ~Waitable() = default;
  virtual bool ready() = 0;  // makes what progress it can; true when there is nothing to wait for
  virtual std::uint64_t progress() const = 0;    // changes whenever something happened
  virtual std::vector<int> awaited() const = 0;  // ranks that have not done their part yet
  virtual std::string describe() const = 0;      // "all_reduce #118"
  // Why others usually do not come (purpose.h), as the end of a sentence.
  virtual std::string usual_cause() const { return {}; }
};

class SharedEngine : public Backend, public Helped, public std::enable_shared_from_this<SharedEngine> {
 public:
  explicit SharedEngine(Membership membership);
  ~SharedEngine() override;

  std::string_view name() const override { return membership_.backend_name; }
  int rank() const override { return membership_.rank; }
  int size() const override { return membership_.size; }
  const std::string& group_name() const override { return membership_.group_name; }
  std::shared_ptr<WorkState> start(Request request) override;
  std::shared_ptr<void> allocate_shared(std::size_t bytes) override;
  std::shared_ptr<Backend> split(const std::vector<std::vector<int>>& parts, const std::string& name,
                                 const GroupOptions& options) override;
  void abort(const std::string& reason, ErrorCode code, int peer) override;
  void close() override;
  void help() override;
  void check_peers() override;
  std::shared_ptr<TraceMemory> trace() const override { return membership_.trace; }
  void help_this() override;

  // ---- for operations; `mutex` is held unless said otherwise
  std::mutex mutex;
  const Control& control() const { return control_; }
  Arena& arena() { return membership_.own->arena; }
  // Address of `bytes` bytes at `offset` of `rank`'s data segment; InternalError when they are not inside it.
  std::byte* block(int rank, std::uint64_t offset, std::size_t bytes) const;
  // Copies what lies at `address` in `rank`'s private memory. False when it is not there (any more).
  bool read_private(int rank, std::uint64_t address, std::span<std::byte> to) const {
    return membership_.peers->read(membership_.world_rank(rank), address, to);
  }
  bool is_alive(int rank) const { return membership_.peers->alive(membership_.world_rank(rank)); }
  bool lends_private_memory() const { return membership_.peers->lend_private_memory(); }
  bool has_left(int rank) const { return shared::has_left(control_, rank); }
  FlightRecorder& recorder() { return recorder_; }
  // LOCKSTEP_DEBUG: look whether buffers are touched while operations on them are in flight.
  bool debugs() const { return debugs_; }
  const PathTable& paths() const { return control_.header().paths; }
  std::uint64_t& sent_to(int rank) { return sent_.at(static_cast<std::size_t>(rank)); }
  ReceiveQueue& receives() { return receives_; }
  Inbox& inbox(int source) { return inboxes_.at(static_cast<std::size_t>(source)); }
  // Advances all pending operations, oldest first; each may take at most `slices` slices.
  void advance_pending(std::size_t slices);
  // A block for a contribution, with room for `bytes`: one that all ranks have finished with, or a new one.
  std::size_t stage(std::size_t bytes);
  // Gives one back, to be used again once every rank has finished collective `sequence`.
  void retire(std::uint64_t sequence, std::size_t offset, std::size_t bytes);
  // The same once `destination` has taken message `number`.
  void retire_message(int destination, std::uint64_t number, std::size_t offset, std::size_t bytes);
  // Posts the next collective; what `placement` says must be there.
  void post(const Call& call, Placement placement, std::size_t offset, std::size_t bytes);
  // This rank's part in `sequence` is over: it reads nothing of it any more.
  void finish(std::uint64_t sequence);
  // Whether every rank that has not left has finished `sequence`.
  bool all_finished(std::uint64_t sequence);
  bool has_finished(int rank, std::uint64_t sequence);
  // What a post of `rank` says about that.
  void learn_finished(int rank, std::uint64_t sequence) {
    auto& known = known_finished_[static_cast<std::size_t>(rank)];
    known = std::max(known, sequence);
  }
  // Offset of this rank's window, with room for `bytes`, for one call until that gives it back; none while another has it.
  std::optional<std::size_t> take_window(std::size_t bytes);
  void give_back_window() { window_in_use_ = false; }
  // Returns when ready; otherwise records and throws the failure. Unlocks while it sleeps.
  void wait(std::unique_lock<std::mutex>& lock, Waitable& target,
            std::optional<std::chrono::nanoseconds> timeout);
  // Records the group's first failure; does not throw.
  void record_failure(const GroupFailure& failure);
  bool failed() const {
    // Whoever sees the failure sees what was complete before it. (What it was is acquired in throw_unusable().)
    return !gone_ && control_.header().failure_state.load(std::memory_order_acquire) !=
                         static_cast<std::uint32_t>(FailureState::NONE);
  }
  // Not left, not a fork: the group's memory may be looked at.
  bool is_member() const;
  // And not failed: one load each, for the hot paths; the function below says which.
  bool usable() const;
  // Throws the recorded failure, or Aborted, in the words of `what` ("all_reduce #118").
  [[noreturn]] void throw_unusable(const std::string& what) const;
  GroupFailure failure_of_group() const;  // of one that has failed

 private:
  class Waiting;
  std::string describe_peer(int rank) const;  // "rank 3 (pid 4121)", "rank 1 (rank 3 of the world, pid 4121)"
  std::string last_call(int rank) const;      // "all_reduce #118"; empty if it made none
  GroupPlace place() const;
  void leave_for_good();
  // Records the failure if a rank that `target` needs, or any that has not left, is gone; nothing if it was ready before.
  void check_peers(Waitable& target);
  void record_timeout(const Waitable& target, std::chrono::nanoseconds patience);
  std::string who_is_late(const Waitable& target) const;
  void reap_retired();
  enum class Express { DONE, POSTED, UNFIT };
  PostLine& fill_line(const Call& call, Placement placement, std::size_t offset, std::size_t bytes);
  // Whether all ranks post this call within a moment; what they have in their lines.
  bool find_lines(std::uint64_t sequence, const Call& call, RankAddresses<const std::byte>& payloads);
  Express express(const Request& request, const Call& call, std::size_t bytes);
  template <typename Verb>
  std::shared_ptr<Operation> begin(Request& request, bool posted, std::unique_lock<std::mutex>& lock);
  std::shared_ptr<Operation> begin_collective(Request& request, std::unique_lock<std::mutex>& lock);

  const Membership membership_;
  const Control control_;
  const unsigned fork_generation_;
  const bool debugs_;
  const int spins_;  // of a call that waits, before it is worth a place in the list of pending operations
  // guarded by mutex
  mutable FlightRecorder recorder_;  // what it notes changes nothing here
  FlightRecorder::Ticket recorded_;  // the last call
  std::deque<std::shared_ptr<Operation>> pending_;
  RetiredBlocks retired_;
  std::uint64_t sequence_ = 0;                 // of the last collective
  std::uint64_t finished_ = 0;                 // this rank has finished all collectives up to this one,
  std::uint64_t finished_ahead_ = 0;           // and finished_ + 1 + i where bit i is set
  std::vector<std::uint64_t> known_finished_;  // by rank, as far as it was seen
  std::size_t window_ = 0;                     // offset
  std::size_t window_bytes_ = 0;
  bool window_in_use_ = false;
  std::vector<std::uint64_t> sent_;  // messages to each rank
  std::vector<Inbox> inboxes_;       // by source
  ReceiveQueue receives_;
  int waiting_ = 0;               // calls of wait() that have not returned
  bool closed_ = false;           // close() was called
  bool closed_unfailed_ = false;  // and the group had not failed: a later failure is not this rank's
  bool gone_ = false;             // and nothing here may look at the control segment any more

  friend class CollectiveOperation;
};

// A started operation: what the user's Work points to, and one entry of the engine's list of pending operations. One whose
// caller waits is made on the stack first and moves to the heap when it is not done soon.
class Operation : public WorkState, public Waitable {
 public:
  Operation(SharedEngine& engine, Request&& request) : engine_(&engine), request_(std::move(request)) {}
  Operation(Operation&& other) noexcept
      : engine_(other.engine_),
        request_(std::move(other.request_)),
        ticket_(other.ticket_),
        state_(other.state_) {}
  ~Operation() override = default;

  void wait(std::optional<std::chrono::nanoseconds> timeout) override;
  bool poll() override;
  std::exception_ptr exception() const override;
  bool ready() override;

  std::string usual_cause() const override { return usual_cause_of_absence(request_.acting.purpose); }
  // What the flight recorder gave for it.
  void keep_record(const FlightRecorder::Ticket& ticket) { ticket_ = ticket; }
  // From here on it may outlive the caller's hold on the group.
  void keep_engine() { kept_engine_ = engine_->shared_from_this(); }
  // With the engine's lock: whether it is done after a moment of spinning. Throws its error if it failed.
  bool done_soon(int spins);
  // With the engine's lock: takes at most `slices` slices of work. True when done or failed.
  bool advance(std::size_t slices);
  // With the engine's lock, when the group failed or is left before this was done: peers may still use its memory.
  virtual void give_up() {}

 protected:
  enum class State { PENDING, DONE, FAILED };
  virtual bool try_advance(
      std::size_t slices) = 0;  // true when this rank's part is over and its buffers are ready

  SharedEngine* const engine_;
  Request request_;
  FlightRecorder::Ticket ticket_;

 private:
  std::shared_ptr<SharedEngine> kept_engine_;
  State state_ = State::PENDING;  // guarded by the engine's mutex, as is the exception
  std::exception_ptr exception_;
};

}  // namespace lockstep::shared

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

#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/backend.h"
#include "lockstep/comm/backends/shared_inbox.h"
#include "lockstep/comm/backends/shared_layout.h"
#include "lockstep/comm/backends/shared_rank_memory.h"

namespace lockstep::shared {

// What an engine knows about the other ranks besides shared memory.
class Peers {  // by rank in the world
 public:
  virtual ~Peers() = default;
  virtual bool alive(int rank) const = 0;
  virtual std::string detail(int rank) const = 0;  // "pid 4121" or nothing
  virtual bool stopped(int rank) const = 0;        // by SIGSTOP or a debugger
};

struct Membership {
  int rank = 0;
  int size = 1;
  std::string group_name;
  std::string backend_name;
  std::vector<int> world_ranks;                     // by rank; empty: the same
  std::shared_ptr<std::byte> control;               // a control segment, made for `size` ranks
  std::vector<std::shared_ptr<SharedMemory>> data;  // by rank
  std::shared_ptr<RankMemory> own;                  // of this rank's data
  std::shared_ptr<Peers> peers;
  GroupOptions options;

  int world_rank(int of) const {
    return world_ranks.empty() ? of : world_ranks.at(static_cast<std::size_t>(of));
  }
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
  void abort(const std::string& reason) override;
  void close() override;
  void help() override;

  // ---- for operations; `mutex` is held unless said otherwise
  std::mutex mutex;
  const Control& control() const { return control_; }
  Arena& arena() { return membership_.own->arena; }
  // Address of `bytes` bytes at `offset` of `rank`'s data segment; InternalError when they are not inside it.
  std::byte* block(int rank, std::uint64_t offset, std::size_t bytes) const;
  bool has_left(int rank) const { return shared::has_left(control_, rank); }
  std::uint64_t& sent_to(int rank) { return sent_.at(static_cast<std::size_t>(rank)); }
  ReceiveQueue& receives() { return receives_; }
  Inbox& inbox(int source) { return inboxes_.at(static_cast<std::size_t>(source)); }
  // Advances all pending operations, oldest first; each may take at most `slices` slices.
  void advance_pending(std::size_t slices);
  // Frees `offset` once every rank has finished collective `sequence`.
  void retire(std::uint64_t sequence, std::size_t offset);
  // Frees `offset` once `destination` has taken message `number`.
  void retire_message(int destination, std::uint64_t number, std::size_t offset);
  // Returns when ready; otherwise records and throws the failure. Unlocks while it sleeps.
  void wait(std::unique_lock<std::mutex>& lock, Waitable& target,
            std::optional<std::chrono::nanoseconds> timeout);
  // Records the group's first failure; does not throw.
  void record_failure(ErrorCode code, const std::string& text, int peer = -1);
  bool failed() const;
  // Not left, not a fork: the group's memory may be looked at.
  bool is_member() const;
  // And not failed: one load each, for the hot paths; the function below says which.
  bool usable() const;
  // Throws the recorded failure, or Aborted, in the words of `what` ("all_reduce #118").
  [[noreturn]] void throw_unusable(const std::string& what) const;

 private:
  class Waiting;
  std::string describe_peer(int rank) const;  // "rank 3 (pid 4121)", "rank 1 (rank 3 of the world, pid 4121)"
  std::string own_place() const;              // "group "world", rank 2 of 4"
  void leave_for_good();
  void check_peers(Waitable& target);
  void warn(const Waitable& target, std::chrono::nanoseconds waited) const;
  std::string who_is_late(const Waitable& target) const;
  void reap_retired();

  const Membership membership_;
  const Control control_;
  const unsigned fork_generation_;
  // guarded by mutex
  std::deque<std::shared_ptr<Operation>> pending_;
  RetiredBlocks retired_;
  std::uint64_t sequence_ = 0;       // of the last collective
  std::vector<std::uint64_t> sent_;  // messages to each rank
  std::vector<Inbox> inboxes_;       // by source
  ReceiveQueue receives_;
  int waiting_ = 0;      // calls of wait() that have not returned
  bool closed_ = false;  // close() was called
  bool gone_ = false;    // and nothing here may look at the control segment any more

  friend class CollectiveOperation;
};

// A started operation: what the user's Work points to, and one entry of the engine's list of pending operations.
class Operation : public WorkState, public Waitable, public std::enable_shared_from_this<Operation> {
 public:
  Operation(std::shared_ptr<SharedEngine> engine, Request request)
      : engine_(std::move(engine)), request_(std::move(request)) {}

  void wait(std::optional<std::chrono::nanoseconds> timeout) override;
  bool poll() override;
  std::exception_ptr exception() const override;
  bool ready() override;

  // With the engine's lock: takes at most `slices` slices of work. True when done or failed.
  bool advance(std::size_t slices);
  // With the engine's lock, when the group failed or is left before this was done: peers may still use its memory.
  virtual void give_up() {}

 protected:
  enum class State { PENDING, DONE, FAILED };
  virtual bool try_advance(
      std::size_t slices) = 0;  // true when this rank's part is over and its buffers are ready

  const std::shared_ptr<SharedEngine> engine_;
  Request request_;

 private:
  State state_ = State::PENDING;  // guarded by the engine's mutex, as is the exception
  std::exception_ptr exception_;
};

}  // namespace lockstep::shared

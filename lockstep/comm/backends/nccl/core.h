// Core: a group over NCCL while operations are under way. It has two channels, for collectives and for
// messages, and a group of the hosts of the same ranks. Through that group the hosts agree on calls. NCCL
// itself notices neither a disagreement nor a dead rank, and never gives up.
//
//   launch()   on the caller's thread: tells the other hosts of the call, and puts NCCL's calls into the
//              channel's stream, after the work in the caller's stream. Waits for no rank.
//   watch()    a thread per channel: takes its operations in order. It waits until all hosts have made the
//              same call, then until the device is done. Meanwhile it checks whether NCCL has failed or a
//              rank has died. Any error fails the group: NCCL's communicators are aborted, so that streams go
//              on. The other hosts are told, and the group for CPU memory fails too.
//   wait()     orders the end of the operation before later work of the caller's stream.
//
// Threads: any. A forked child may call only forked(), refuse_fork() and stay(), because threads, locks and
// communicators are the parent's.
#pragma once

#include <array>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/comm/backends/nccl/lanes.h"
#include "lockstep/comm/backends/nccl/operation.h"
#include "lockstep/comm/backends/nccl/standing.h"
#include "lockstep/comm/group/fork_guard.h"
#include "lockstep/comm/group/group_failure.h"

namespace lockstep::nccl {

struct Channel {
  std::unique_ptr<Lanes> lanes;
  std::uint64_t number = 0;                        // number of operations so far
  std::deque<std::shared_ptr<Operation>> running;  // in the stream's order
};

class Core : public std::enable_shared_from_this<Core> {
 public:
  struct Membership {
    const Library* library = nullptr;
    std::shared_ptr<Backend> cpu;    // the group for CPU memory
    std::shared_ptr<Backend> hosts;  // a group of the same ranks that serves only the agreement
    std::string name;
    std::string_view backend;
    std::vector<int> world_ranks;  // by rank; empty: equal to the ranks
    int device = 0;
    std::optional<Grid> grid;  // set if sums are taken in two levels
    GroupOptions options;
  };
  using Channels = std::array<Channel, 2>;
  static constexpr std::size_t COLLECTIVES = 0;
  static constexpr std::size_t MESSAGES = 1;

  Core(Membership membership, Channels channels);
  void begin();  // starts the threads
  // ends the threads and waits for them at most a moment; only the first call does so
  void end();

  // Keeps this object for good, because the destructor in a forked child would end what belongs to the
  // parent.
  void stay() { itself_ = shared_from_this(); }

  int rank() const { return membership_.hosts->rank(); }
  int size() const { return membership_.hosts->size(); }
  const Membership& membership() const { return membership_; }
  bool forked() const { return fork_guard_.is_fork(); }
  void refuse_fork(std::string_view what) const {
    fork_guard_.refuse(what, standing_.place());
  }  // throws Aborted
  std::shared_ptr<Operation> start(Request&& request);
  void fail(ErrorCode code, const std::string& text, int peer = -1);
  void check_peers();  // see Backend::check_peers()
  void require_usable(const std::string& what);
  // Called within a handler, for an error of the group for CPU memory in call `what`. If that group has
  // failed, so does the whole group. Throws the error for the caller.
  [[noreturn]] void rethrow_of_cpu(const std::string& what);

  // ---- called by operations, and by waits on other groups
  void launch_messages();
  void wait(Operation& operation, std::optional<std::chrono::nanoseconds> timeout);
  bool poll(Operation& operation);
  std::exception_ptr exception_of(const Operation& operation);

 private:
  void fail_with(const std::exception_ptr& error);
  void fail_operation(Operation& operation);
  void fail_all();
  void await_abort(std::unique_lock<std::mutex>& lock);
  void launch(Channel& channel, const std::vector<std::shared_ptr<Operation>>& operations);
  void watch(Channel& channel);
  DeviceStreams& streams() const { return *membership_.library->streams; }

  const Membership membership_;
  const ForkGuard fork_guard_{};
  std::shared_ptr<Core> itself_;
  Channels channels_;
  std::array<std::thread, 2> watchers_;
  std::mutex launching_;  // orders the callers; taken before mutex_
  std::mutex mutex_;
  std::condition_variable changed_;
  // guarded by mutex_
  std::vector<std::shared_ptr<Operation>> queued_;  // messages that are not launched yet
  Standing standing_;
  FlightRecorder recorder_;
};

}  // namespace lockstep::nccl

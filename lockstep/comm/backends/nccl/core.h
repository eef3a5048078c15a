// Core: what a group over NCCL consists of while operations are under way: two channels, for collectives and
// for messages, and a group of the same ranks' hosts, through which they agree. NCCL itself neither notices
// that ranks called different things, nor that one is dead, nor does it ever give up.
//
//   launch()   on the caller's thread: tells the other hosts what is called, and puts NCCL's calls into the
//              channel's stream, behind what is in the caller's stream. Waits for nobody.
//   watch()    a thread per channel: takes its operations in order, waits until all hosts have called the
//              same, then until the device is done, and looks meanwhile whether NCCL has failed or a rank has
//              died. Whatever goes wrong fails the group: NCCL's communicators are aborted, so that streams
//              go on, and the other hosts are told, in the part for CPU memory too.
//   wait()     puts the end of the operation before what the caller's stream does next.
//
// Threads: any. In a fork only forked(), refuse_fork() and stay(): threads, locks and communicators are the
// parent's.
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
  std::uint64_t number = 0;                        // of operations so far
  std::deque<std::shared_ptr<Operation>> running;  // in the stream's order
};

class Core : public std::enable_shared_from_this<Core> {
 public:
  struct Membership {
    const Library* library = nullptr;
    std::shared_ptr<Backend> cpu;    // the group's part for CPU memory
    std::shared_ptr<Backend> hosts;  // the same ranks, for the agreement alone
    std::string name;
    std::string_view backend;
    std::vector<int> world_ranks;  // by rank; empty: the same
    int device = 0;
    std::optional<Grid> grid;  // of what is taken in two levels
    GroupOptions options;
  };
  using Channels = std::array<Channel, 2>;
  static constexpr std::size_t COLLECTIVES = 0;
  static constexpr std::size_t MESSAGES = 1;

  Core(Membership membership, Channels channels);
  void begin();  // starts the threads
  void end();    // ends them, without waiting for more than a moment; the first call does it

  // For good: what a fork's destructor would end is the parent's.
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
  void check_peers();  // as Backend's
  void require_usable(const std::string& what);
  // Within a handler, of what the part for CPU memory threw in call `what`: the whole group fails if that
  // part has. Throws what is to be thrown instead.
  [[noreturn]] void rethrow_of_cpu(const std::string& what);

  // ---- for operations, and whatever waits beside them
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
  std::mutex launching_;  // orders the callers; taken before the other
  std::mutex mutex_;
  std::condition_variable changed_;
  // guarded by mutex_
  std::vector<std::shared_ptr<Operation>> queued_;  // messages that are not launched
  Standing standing_;
  FlightRecorder recorder_;
};

}  // namespace lockstep::nccl

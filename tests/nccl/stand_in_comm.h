// A communicator of the stand-in for NCCL, from its making to its end.
//
//   IN_PROGRESS --all ranks met--> SUCCESS --an error--> that error        (what ncclCommGetAsyncError says)
//
// A handle (ncclComm_t) is a number that is never used again, so a call with one that was destroyed or
// aborted is INVALID_ARGUMENT and never somebody else's communicator. Operations that are under way keep the
// object. Launches of one communicator run in the order in which they took their turns, whatever streams they
// are on.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "lockstep/comm/backends/nccl/api.h"
#include "tests/nccl/stand_in_memory.h"

namespace lockstep::nccl::stand_in {

class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  // Makes one and its handle. Never blocks; meet() must follow.
  static std::shared_ptr<Communicator> make(int rank, int size, bool is_blocking);
  // Null if there is none (any more).
  static std::shared_ptr<Communicator> find(Comm handle);

  Comm handle() const { return handle_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  bool is_blocking() const { return is_blocking_; }

  // Waits for the other ranks; leaves the state at SUCCESS or at an error.
  Result meet(const UniqueId& id);

  Result state();
  void set_state(Result state, const std::string& why = "");
  std::string last_error();
  // What ncclCommGetAsyncError asks for.
  Result poll();
  // IN_PROGRESS for two polls; then `rest` is done, and the state is SUCCESS.
  void postpone(std::function<void()> rest);
  // Notes an error that leaves the state as it is.
  void note(const std::string& message);

  // From now on poll() is IN_PROGRESS until other ranks have taken what was sent to them.
  void finalize();
  // The handle ends. What is under way goes on.
  void release();
  // The handle ends, and so does what is under way, without a result; when this returns, no memory of the
  // caller is touched again. What was sent and not taken is lost.
  void abort();
  bool is_aborted() const { return aborted_; }

  // While one lives and is true, abort() waits for it: to be held while memory of the caller is touched.
  class Touch {
   public:
    explicit Touch(Communicator& comm);
    ~Touch();
    Touch(const Touch&) = delete;
    Touch& operator=(const Touch&) = delete;
    explicit operator bool() const { return !comm_.aborted_; }

   private:
    Communicator& comm_;
  };

  std::uint64_t take_turn() { return turns_taken_++; }
  void await_turn(std::uint64_t turn);  // returns early if aborted
  void end_turn() { ++turns_ended_; }

  Channel& channel_to(int peer) { return memory_->channel(rank_, peer); }
  Channel& channel_from(int peer) { return memory_->channel(peer, rank_); }

  Communicator(int rank, int size, bool is_blocking);

 private:
  void drop_connections();
  bool is_drained();

  const int rank_;
  const int size_;
  const bool is_blocking_;
  const Comm handle_;
  std::unique_ptr<SharedMemory> memory_;  // from meet() on

  std::atomic<bool> aborted_ = false;
  std::atomic<int> touching_ = 0;
  std::atomic<std::uint64_t> turns_taken_ = 0;
  std::atomic<std::uint64_t> turns_ended_ = 0;

  std::mutex mutex_;
  Result state_ = IN_PROGRESS;       // guarded by mutex_
  std::string last_error_;           // guarded by mutex_
  std::function<void()> postponed_;  // guarded by mutex_
  int polls_left_ = 0;               // guarded by mutex_
  bool is_finalizing_ = false;       // guarded by mutex_
};

// The last error of any communicator of this process.
std::string last_error_of_process();
void note_for_process(const std::string& message);

// A line as NCCL's, to stdout, with NCCL_DEBUG=INFO. "HOST:PID:TID [0] NCCL INFO " stands before it.
void log_info(const std::string& text);
void log_version_once();

}  // namespace lockstep::nccl::stand_in

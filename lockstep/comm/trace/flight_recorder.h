// FlightRecorder: the last calls of this rank on a group, with their times. Other processes can read them
// when the rank hangs or has died. Always on. For backend authors; people use `lockstep trace dump` and
// `lockstep trace analyze`.
//
//   FlightRecorder recorder(memory, {"world", "shm", rank, size, {}});         // once per group, under the
//                                                                              // backend's lock:
//   const FlightRecorder::Ticket ticket = recorder.start(call_of(request), sequence);
//   ...
//   recorder.finish(ticket, FlightRecorder::DONE);
//
// Cost        About 20 ns for both calls: two readings of the cycle counter and plain stores. No lock, no
//             system call, no allocation, no formatting.
// Keeps       The last RECORDS (256) calls. A call that has not ended is not overwritten as long as the ring
//             has another place nearby; finish() of an overwritten call does nothing. A CallArchive gets the
//             overwritten calls.
// Threads     The caller orders the calls of one recorder (its group's lock). Readers are never waited for.
// Fork        A child must not use its parent's recorder, because it does not have the memory.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/comm/call.h"
#include "lockstep/comm/trace/rank_trace.h"
#include "lockstep/comm/trace/trace_memory.h"

namespace lockstep {

class FlightRecorder {
 public:
  enum Outcome : std::uint64_t { DONE = 0, FAILED = 1 };
  struct Ticket {
    std::uint64_t stamp = 0;  // 0: no call
    std::size_t slot = 0;
  };

  FlightRecorder(std::shared_ptr<TraceMemory> memory, const TracedGroup& group);
  ~FlightRecorder();
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  // `sequence` is the collective's number in its group. It is 0 for a message, which has a tag.
  Ticket start(const Call& call, std::uint64_t sequence, int tag = 0) noexcept {
    std::size_t slot = next_ % trace::RECORDS;
    for (std::size_t passed = 0; passed < NEARBY && is_open(records_[slot]); ++passed)
      slot = (slot + 1) % trace::RECORDS;
    if (is_archived.load(std::memory_order_relaxed)) [[unlikely]]
      slot = make_room(slot);
    next_ = slot + 1;
    trace::Record& record = records_[slot];
    last_stamp_ += 2;
    record.stamp.store(last_stamp_ - 1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    record.sequence.store(sequence, std::memory_order_relaxed);
    record.call.store(pack(call), std::memory_order_relaxed);
    record.count.store(call.count, std::memory_order_relaxed);
    record.tag.store(static_cast<std::uint32_t>(tag), std::memory_order_relaxed);
    record.end.store(0, std::memory_order_relaxed);
    record.start.store(clock_.now(), std::memory_order_relaxed);
    record.stamp.store(last_stamp_, std::memory_order_release);
    return {last_stamp_, slot};
  }

  void finish(const Ticket& ticket, Outcome outcome) noexcept {
    trace::Record& record = records_[ticket.slot];
    if (ticket.stamp == 0 || record.stamp.load(std::memory_order_relaxed) != ticket.stamp) return;
    record.end.store(clock_.now() * 2 + outcome, std::memory_order_release);
  }

  // Sets the source of a message from any source, before finish().
  void set_peer(const Ticket& ticket, int peer) noexcept {
    trace::Record& record = records_[ticket.slot];
    if (ticket.stamp == 0 || record.stamp.load(std::memory_order_relaxed) != ticket.stamp) return;
    const std::uint64_t call = record.call.load(std::memory_order_relaxed) & 0xffffffffU;
    record.call.store(call | static_cast<std::uint64_t>(peer) << 32U, std::memory_order_relaxed);
  }

  // This rank has left the group. Its records stay for a while.
  void leave() const noexcept;

  // Records the group's first failure, as this rank learns it: in the trace memory, and for the launcher
  // (os/failure_note.h). Writes a trace file if LOCKSTEP_TRACE_DIR names a folder. Returns the end of the
  // error's message, "; lockstep trace analyze FILE says ...", or nothing. Later calls return the same. If
  // the file cannot be written, the text says so, and nothing is thrown. `peer` is the rank of the group that
  // caused the failure. Below 0, `reporter` is the cause: it found the failure, or the failure met that rank
  // alone.
  const std::string& note_failure(const std::string& what, ErrorCode code, int peer, int reporter);

  // For CallArchive, from any thread.
  std::optional<GroupTrace> read() const;  // nothing in a forked child
  TraceTimes times() const { return memory_->times(); }

 private:
  friend class CallArchive;
  static constexpr std::size_t NEARBY = 16;

  static bool is_open(const trace::Record& record) {
    return record.stamp.load(std::memory_order_relaxed) != 0 &&
           record.end.load(std::memory_order_relaxed) == 0;
  }
  static std::uint64_t pack(const Call& call) {
    return static_cast<std::uint64_t>(call.verb) | static_cast<std::uint64_t>(call.dtype) << 8U |
           static_cast<std::uint64_t>(call.op) << 16U | static_cast<std::uint64_t>(call.purpose) << 24U |
           static_cast<std::uint64_t>(static_cast<std::uint32_t>(call.root)) << 32U;
  }

  int world_rank(int of) const;

  // Gives the archive the record in the slot. If that call is still open, gives it the record of another
  // slot. Returns the slot that is free now.
  std::size_t make_room(std::size_t slot) noexcept;
  static inline std::atomic<bool> is_archived = false;  // a CallArchive exists

  const std::shared_ptr<TraceMemory> memory_;
  const CycleClock clock_;
  const TraceMemory::Ring ring_;
  const unsigned made_in_;              // generation of forked processes
  const std::vector<int> world_ranks_;  // by rank of the group; empty: equal to the ranks
  trace::Record* const records_;
  std::size_t next_ = 0;
  std::uint64_t last_stamp_ = 0;
  bool has_failed_ = false;
  std::string note_;
};

}  // namespace lockstep

// TraceMemory: the memory file of a rank's flight recorders (trace_layout.h). It also keeps the files of the
// other ranks on this machine open, so that they can be read when their owners are dead.
//
//   const auto memory = TraceMemory::create(rank, size);
//   memory->share(meeting, deadline);          // collective; where descriptors can be passed
//   FlightRecorder recorder(memory, {"world", "tcp", rank, size, {}});
//
// Threads: any.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "lockstep/comm/meeting/meeting.h"
#include "lockstep/comm/trace/rank_trace.h"
#include "lockstep/os/cycle_clock.h"
#include "lockstep/os/fork_generation.h"
#include "lockstep/os/shared_memory.h"

namespace lockstep {

struct TracedGroup {
  std::string name;
  std::string backend;
  int rank = 0;
  int size = 1;
  std::vector<int> world_ranks = {};  // by rank; empty: equal to the ranks
};

class TraceMemory {
 public:
  // Makes the file of this process as `rank` of a world of `size`. Throws SystemError.
  static std::shared_ptr<TraceMemory> create(int rank, int size);

  // While the result lives, live_traces() shows that this process waits in init_process_group. Throws
  // SystemError.
  static std::shared_ptr<SharedMemory> announce(int rank, int size);

  // Passes this rank's file to all other ranks and keeps theirs. Collective. Does nothing where descriptors
  // cannot be passed.
  void share(Meeting& meeting, Deadline deadline);

  CycleClock clock() const { return clock_; }
  TraceTimes times() const { return {made_at_, clock_.pair()}; }
  int world_size() const { return world_size_; }
  std::span<const std::byte> bytes() const { return {memory_->data(), memory_->size()}; }
  const std::vector<Fd>& others() const { return others_; }

  // ---- called by FlightRecorder
  struct Ring {
    trace::RingHeader* header = nullptr;
    trace::Record* records = nullptr;
    // memory that no other process can read: for more than RINGS groups at once, and in a forked child
    std::shared_ptr<void> own;
  };
  Ring open(const TracedGroup& group);
  void close(const Ring& ring);
  // Writes the last calls of all ranks that can be read here into $LOCKSTEP_TRACE_DIR. See
  // FlightRecorder::note_failure.
  std::string write_file();

 private:
  TraceMemory(std::shared_ptr<SharedMemory> memory, CycleClock clock, CycleClock::Pair now, int world_size)
      : memory_(std::move(memory)), clock_(clock), made_at_(now), world_size_(world_size) {}
  std::byte* ring_at(std::size_t index) const {
    return memory_->data() + trace::HEADER_BYTES + index * trace::RING_BYTES;
  }
  std::byte* free_ring();
  static void prepare(std::byte* ring, const TracedGroup& group);

  const std::shared_ptr<SharedMemory> memory_;
  const CycleClock clock_;
  const CycleClock::Pair made_at_;
  const int world_size_;
  const std::size_t rings_ = (memory_->size() - trace::HEADER_BYTES) / trace::RING_BYTES;
  const unsigned made_in_ = fork_generation();
  std::vector<Fd> others_;
  std::mutex mutex_;
  // guarded by mutex_
  std::size_t opened_ = 0;         // number of rings that were ever used
  std::deque<std::byte*> closed_;  // those of them whose groups are gone; the latest is last
};

}  // namespace lockstep

// Sequencer numbers a group's collectives. It knows the last number that this rank posted, the numbers that
// it finished, and the progress of the other ranks. The rules are in segment/layout.h.
//
//   if (sequencer.is_slot_free(sequencer.last() + 1)) sequencer.post(call, placement, offset, bytes);
//   ...
//   sequencer.finish(sequence);                        // this rank reads nothing of that collective any more
//   if (sequencer.all_finished(sequence)) use_its_memory_again();
//
// Collectives are posted in the order of their numbers and finished in any order.
//
// Threads: the lock of the group's operations.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/comm/backends/segment/layout.h"
#include "lockstep/comm/backends/segment/rank_memory.h"
#include "lockstep/os/process.h"

namespace lockstep::shared {

class Sequencer {
 public:
  Sequencer(const Control& control, int rank, int size)
      : control_(control), rank_(rank), size_(size), known_finished_(static_cast<std::size_t>(size)) {}

  std::uint64_t last() const { return last_; }  // number of the last collective that this rank has posted
  // Whether every rank has finished the collective that used the slot of `sequence` last.
  bool is_slot_free(std::uint64_t sequence) { return sequence <= SLOTS || all_finished(sequence - SLOTS); }
  // Fills this rank's line of the next number. The caller publishes it by the store of `sequence`.
  PostLine& fill_next(const Call& call, Placement placement, std::size_t offset, std::size_t bytes) {
    PostLine& mine = control_.post_line(++last_, rank_);
    mine.finished = finished_;
    mine.call = call;
    mine.offset = offset;
    mine.bytes = bytes;
    mine.placement = placement;
    control_.rank_line(rank_).last.store(pack(last_, verb_and_purpose(call)), std::memory_order_relaxed);
    return mine;
  }
  // Posts the next collective. The data that `placement` names must be there.
  void post(const Call& call, Placement placement, std::size_t offset, std::size_t bytes);

  // This rank's part in `sequence` is over: it reads no data of it any more.
  void finish(std::uint64_t sequence) {
    finished_ahead_ |= std::uint64_t{1} << (sequence - finished_ - 1);
    for (; (finished_ahead_ & 1U) != 0; finished_ahead_ >>= 1U) ++finished_;
    // The release follows this rank's last look at the other ranks' lines and blocks. Their owners reuse them
    // once they see the new value. No sleeper is woken here: a rank that waits for a slot may sleep its 10
    // ms.
    control_.rank_line(rank_).finished.store(finished_, std::memory_order_release);
    prefetch_for_writing(&control_.post_line(last_ + 1, rank_));
  }
  bool has_finished(int rank, std::uint64_t sequence) {
    auto& known = known_finished_[static_cast<std::size_t>(rank)];
    if (known < sequence) known = control_.rank_line(rank).finished.load(std::memory_order_acquire);
    return known >= sequence || has_left(control_, rank);
  }
  // Whether every rank that has not left has finished `sequence`.
  bool all_finished(std::uint64_t sequence) {
    for (int r = 0; r < size_; ++r) {
      if (!has_finished(r, sequence)) return false;
    }
    return true;
  }
  // Takes note of a post of `rank`, which carries the number up to which it has finished.
  void learn_finished(int rank, std::uint64_t sequence) {
    auto& known = known_finished_[static_cast<std::size_t>(rank)];
    known = std::max(known, sequence);
  }

 private:
  const Control control_;
  const int rank_;
  const int size_;
  std::uint64_t last_ = 0;
  std::uint64_t finished_ = 0;  // this rank has finished all collectives up to this one
  // bit i is set: it has also finished collective finished_ + 1 + i
  std::uint64_t finished_ahead_ = 0;
  std::vector<std::uint64_t> known_finished_;  // by rank: the last value seen
};

}  // namespace lockstep::shared

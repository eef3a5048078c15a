// Passage moves data between all ranks out of private memory, while all ranks wait. The data pass through a
// small window in each rank's shared memory, which stays in its cache (the rules are in segment/layout.h). It
// serves all_gather, all_to_all and reduce_scatter; and broadcast, where only the root has data.
//
//   const PassagePlan plan = passage_plan(ranks, /*is_same=*/false);
//   Passage passage(context, plan, sequence, given, expected);
//   if (passage.advance([&](std::size_t begin, const Parts& pieces) { ... })) all_was_given_and_taken();
//
// For S bytes to another rank, S bytes are copied in and S bytes are taken out of the cache: little more than
// 3 S bytes of memory traffic. A block for all of the data would cost 6 S. Reading the other's memory through
// the kernel costs 3 S, and a look-up of every page.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/comm/backends/shared/context.h"
#include "lockstep/comm/backends/shared/part_table.h"
#include "lockstep/os/process.h"

namespace lockstep::shared {

// The data of one rank for another go in chunks of one portion, chunk c in slot c % SLOTS_OF_PASSAGE.
struct PassagePlan {
  // every rank gets the same data, so a slot has one portion; else one for each rank
  bool is_same = false;
  std::size_t head = 0;     // bytes before the first slot, for a table of parts
  std::size_t portion = 0;  // bytes
  std::size_t slot = 0;

  std::size_t place(std::size_t chunk, int to) const;  // offset in the window
  std::size_t window_bytes() const;
  std::size_t chunks(std::size_t bytes) const { return (bytes + portion - 1) / portion; }
  // Number of bytes in chunk `chunk` of a message of `bytes` bytes.
  std::size_t bytes_of(std::size_t chunk, std::size_t bytes) const;
};

PassagePlan passage_plan(int ranks, bool is_same);

class Passage {
 public:
  // `given` is this rank's data for each rank; `expected` is the number of bytes from each rank. This rank's
  // data for itself are read in place.
  Passage(Context& context, const PassagePlan& plan, std::uint64_t sequence, Parts given,
          std::vector<std::size_t> expected);

  // Makes all progress that is possible now. take(begin, pieces) gets the ranks' data for this rank from byte
  // `begin` on, in order. Returns true when this rank has given and taken everything; other ranks may still
  // read its window.
  template <typename Take> bool advance(Take take) {
    for (int idle = 0; !is_over() && idle < SPINS; ++idle) {
      const std::size_t before = given_ + taken_;
      if (may_give()) give();
      if (may_take()) {
        take(taken_ * plan_.portion, pieces());
        ++taken_;
        publish_taken();
      }
      if (given_ + taken_ != before) {
        idle = -1;
      } else {
        relax_cpu();
      }
    }
    return is_over();
  }
  // Whether this rank still waits for data of `rank`, or for `rank` to empty a slot.
  bool owes(int rank) const;

 private:
  static constexpr int SPINS = 50;  // number of looks before the rank does other work

  bool is_over() const { return given_ == gives_ && taken_ == takes_; }
  bool has_given(int rank, std::size_t chunks, std::memory_order order) const;
  bool may_give() const;
  bool may_take() const;
  void give();
  const Parts& pieces();
  void publish_taken();

  Context* context_;
  PassagePlan plan_;
  std::uint64_t sequence_;
  Parts data_;
  std::vector<std::size_t> expected_;
  Parts pieces_;
  std::size_t gives_ = 0;  // number of chunks, in all and so far
  std::size_t given_ = 0;
  std::size_t takes_ = 0;
  std::size_t taken_ = 0;
};

}  // namespace lockstep::shared

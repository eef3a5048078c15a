// WindowReduction is an all_reduce of private memory, while all ranks wait for it. The data pass through a
// small window in each rank's shared memory, which stays in its cache (the rules are in segment/layout.h).
//
//   const WindowPlan plan = window_plan(bytes, ranks, /*one_chunk=*/false);
//   WindowReduction window(context, plan, call, sequence, data);
//   if (window.advance(blocks)) the_sum_is_in(data);
//
// Of S bytes on each of N ranks, (N-1)/N S are copied in, S/N are reduced from all ranks, and (N-1)/N S are
// copied out. This moves (4 - 2/N) S bytes through the caches; copying all data in and out would move 5 S.
// After "Optimizing MPI collectives on shared memory multi-cores" (SC 2023) and the two-shot all_reduce of
// DeepSpeed's shared-memory communication.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/comm/backends/shared/context.h"

namespace lockstep::shared {

// Chunk c has the bytes [c * chunk, (c + 1) * chunk). Rank q reduces portion q of each chunk.
struct WindowPlan {
  std::size_t total = 0;
  std::size_t portion = 0;  // in bytes
  std::size_t chunk = 0;    // in bytes: one portion for every rank
  std::size_t chunks = 0;
  std::size_t slots = 0;

  struct Range {
    std::size_t begin = 0;
    std::size_t bytes = 0;
  };
  Range range(std::size_t chunk_number, int rank) const;
  // Offset of that portion in a window.
  std::size_t place(std::size_t chunk_number, int rank) const;
  std::size_t window_bytes() const { return slots * chunk; }
};

WindowPlan window_plan(std::size_t total, int ranks, bool one_chunk);

class WindowReduction {
 public:
  // `data` holds the contribution and gets the result.
  WindowReduction(Context& context, const WindowPlan& plan, const Call& call, std::uint64_t sequence,
                  std::byte* data);

  // Makes all progress that is possible now. Returns true when the result is complete.
  bool advance();
  bool has_reduced_all(int rank) const;

 private:
  bool step();
  bool all_reached(std::atomic<std::uint64_t> WindowLine::*counter, std::uint64_t word) const;
  std::byte* slot(int rank, std::size_t chunk, int portion) const;
  void copy_in();
  void reduce_portion();
  void copy_out();

  Context* context_;
  WindowPlan plan_;
  Call call_;
  std::uint64_t sequence_;
  std::byte* data_;
  std::size_t in_ = 0;  // number of chunks copied in
  std::size_t reduced_ = 0;
  std::size_t out_ = 0;
};

}  // namespace lockstep::shared

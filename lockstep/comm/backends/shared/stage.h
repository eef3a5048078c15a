// Stage: the blocks of this rank's shared memory through which it passes private data to the other ranks. It
// knows when a block may be used again.
//
//   const std::size_t offset = stage.take(bytes);
//   ... fill arena.at(offset), post collective `sequence` ...
//   stage.retire(sequence, offset, bytes);              // free once every rank has finished that collective
//
// A rank also keeps one window for large data (shared/window.h, shared/passage.h). One call at a time uses
// it.
//
// Threads: the lock of the group's operations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "lockstep/comm/backends/segment/arena.h"
#include "lockstep/comm/backends/segment/rank_memory.h"
#include "lockstep/comm/backends/shared/sequencer.h"

namespace lockstep::shared {

class Stage {
 public:
  Stage(Arena& arena, Sequencer& sequencer, const Control& control, int rank, int size)
      : arena_(arena), sequencer_(sequencer), control_(control), rank_(rank), size_(size) {}

  // Returns a block with room for `bytes`: one that all ranks have finished with, or a new one.
  std::size_t take(std::size_t bytes);
  // Gives back a block, to be reused once every rank has finished collective `sequence`.
  void retire(std::uint64_t sequence, std::size_t offset, std::size_t bytes) {
    retired_.push_back({sequence, offset, bytes});
  }
  // Gives back a block, to be reused once `destination` has taken message `number`.
  void retire_message(int destination, std::uint64_t number, std::size_t offset, std::size_t bytes) {
    retired_.push_back({number, offset, bytes, destination});
  }
  // Frees blocks once many have accumulated.
  void tidy() {
    if (retired_.size() > KEPT_BLOCKS) reap();
  }

  // Returns the offset of the window, with room for `bytes`. The call owns the window until it gives it back.
  // Returns none while another call owns it.
  std::optional<std::size_t> take_window(std::size_t bytes);
  void give_back_window() { window_.is_taken = false; }

  // Returns all blocks that peers may still read, including the window. The stage is empty then.
  RetiredBlocks leave();

 private:
  static constexpr std::size_t KEPT_BLOCKS = 8;  // free blocks that are kept for reuse

  struct Window {
    std::size_t offset = 0;
    std::size_t bytes = 0;
    bool is_taken = false;
  };

  void reap();
  void retire_window();

  Arena& arena_;
  Sequencer& sequencer_;
  const Control control_;
  const int rank_;
  const int size_;
  RetiredBlocks retired_;
  Window window_;
};

}  // namespace lockstep::shared

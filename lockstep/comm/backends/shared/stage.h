// Stage: the blocks of this rank's shared memory through which it passes private data to the others, and when
// a block may be used again.
//
//   const std::size_t offset = stage.take(bytes);
//   ... fill arena.at(offset), post collective `sequence` ...
//   stage.retire(sequence, offset, bytes);              // free once every rank has finished that collective
//
// A rank also keeps one window for large data (shared/window.h, shared/passage.h), which one call at a time
// uses.
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

  // A block with room for `bytes`: one that all ranks are through with, or a new one.
  std::size_t take(std::size_t bytes);
  // Gives one back, to be used again once every rank has finished collective `sequence`.
  void retire(std::uint64_t sequence, std::size_t offset, std::size_t bytes) {
    retired_.push_back({sequence, offset, bytes});
  }
  // The same once `destination` has taken message `number`.
  void retire_message(int destination, std::uint64_t number, std::size_t offset, std::size_t bytes) {
    retired_.push_back({number, offset, bytes, destination});
  }
  // Frees blocks where many have come together.
  void tidy() {
    if (retired_.size() > KEPT_BLOCKS) reap();
  }

  // Offset of the window, with room for `bytes`, for one call until that gives it back; none while another
  // call has it.
  std::optional<std::size_t> take_window(std::size_t bytes);
  void give_back_window() { window_.is_taken = false; }

  // All blocks that peers may still read, the window among them; the stage is empty then.
  RetiredBlocks leave();

 private:
  static constexpr std::size_t KEPT_BLOCKS = 8;  // that were used for staging and may be used again

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

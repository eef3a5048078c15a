// RankMemory is one rank's own data segment, shared by all groups of its job. It also holds the memory that
// closed groups leave behind.
//
// Sub-groups are made and destroyed in one set of segments, so a group must give back its memory. Staged
// blocks return when the last peer has read them. The control block returns when the last member is gone.
// Neither happens while this rank is in a call of that group. settle() gives back all memory that has become
// free. After a failure nothing is given back: a stopped peer may wake up and write.
//
// Threads: own lock, taken after an engine's and before the arena's.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "lockstep/comm/backends/segment/arena.h"
#include "lockstep/comm/backends/segment/layout.h"

namespace lockstep::shared {

// A staged block that peers may still read.
struct Retired {
  std::uint64_t number;  // of the collective or, with a destination, of the message
  std::size_t offset;
  std::size_t bytes;
  int destination = -1;
};
using RetiredBlocks = std::deque<Retired>;

bool has_left(const Control& control, int rank);
// Frees the blocks that no rank of the group needs any more. `rank` is this rank.
void free_finished(RetiredBlocks& blocks, Arena& arena, const Control& control, int rank, int size);

// A group of this rank, for the waits of its other groups.
class Helped {
 public:
  virtual ~Helped() = default;
  virtual void help_this() = 0;  // makes the progress that is possible, unless another thread is doing so
};

// For a rank that did not make the block. `memory` is the maker's name for its place. The hold ends with the
// last reference.
std::shared_ptr<void> hold_common(std::shared_ptr<std::byte> memory);

class RankMemory {
 public:
  explicit RankMemory(std::shared_ptr<SharedMemory> memory, std::string bound = {})
      : arena(std::move(memory), std::move(bound)) {}

  Arena arena;

  // Makes the control block of a new group of `size` ranks, of which this rank will be rank 0. Returns its
  // offset.
  std::size_t make_control(int size);
  // Gives back a control block that no other rank has seen.
  void discard_control(std::size_t offset);

  // A block that `holders` ranks hold, with any values. Its header counts them; the owner frees it in
  // settle() if it was not the last.
  static std::shared_ptr<void> make_common(const std::shared_ptr<RankMemory>& own, std::size_t bytes,
                                           int holders);

  // The remains of a group after this rank's last call of it.
  struct Left {
    std::shared_ptr<std::byte> memory;  // of the control segment
    Control control;
    int rank;
    int size;
    RetiredBlocks blocks;
  };
  void leave(Left group);
  void settle();

  void add_group(const std::shared_ptr<Helped>& group);
  // For a long wait, with no lock held. Peers may be waiting for an operation of another group of this rank.
  void help_groups();

 private:
  struct Owned {
    std::size_t offset;
    int size;
  };
  void let_go_of_common(std::size_t offset);
  bool is_over(const Owned& group);  // frees it if it can be freed
  bool is_gone(Left& group);

  std::mutex mutex_;
  // guarded by mutex_
  std::vector<Owned> owned_;
  std::vector<Left> left_;
  std::vector<std::size_t> common_;  // blocks that this rank has let go of and others hold
  std::vector<std::weak_ptr<Helped>> groups_;
};

}  // namespace lockstep::shared

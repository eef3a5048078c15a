// Sources finds the data that other ranks contribute to a collective, and how many bytes of them can be read.
// Contribution is the writing side. Sources only reads.
//
//   const Source source = sources.whole(rank, bytes);
//   if (sources.copy_out(rank, source, output, copied) == Copied::ALL) ...
//
// AS_POSTED --read_late_blocks(): the ranks' paths differ--> LATE
//
//   AS_POSTED  the data are where the post line says
//   LATE       data that were PRIVATE or WINDOWED are in blocks, filled after the posts (Share::late_block)
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "lockstep/comm/backends/shared/context.h"
#include "lockstep/comm/backends/shared/part_table.h"

namespace lockstep::shared {

struct Source {
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::size_t behind = 0;   // as in Part
  bool is_private = false;  // `data` is an address in the contributor's private memory
};

enum class Copied {
  ALL,
  SOME,        // the rest cannot be read yet
  UNREADABLE,  // the contributor's private memory cannot be read: it is gone, or forbids it
};

class Sources {
 public:
  Sources(Context& context, std::uint64_t sequence) : context_(&context), sequence_(sequence) {}

  PostLine& line(int rank) const { return context_->control().post_line(sequence_, rank); }
  Share& share(int rank) const { return context_->control().share(sequence_, rank); }
  // If so, the line and the data that it names can be read, too.
  bool is_posted(int rank) const { return line(rank).sequence.load(std::memory_order_acquire) == sequence_; }

  // ---- for a rank that has posted
  Placement placement(int rank) const { return line(rank).placement; }
  bool has_late_block(int rank) const {
    return number_for(share(rank).staged.load(std::memory_order_acquire), sequence_) > 0;
  }
  // Address of its contribution of `bytes` bytes; checked.
  std::byte* address(int rank, std::size_t bytes) const;
  // All of the contribution as a source of `bytes` bytes.
  Source whole(int rank, std::size_t bytes) const;
  // The entry for this rank in its part table, and that part as a source of `bytes` bytes.
  Part part_entry(int rank) const;
  Source part(int rank, std::size_t bytes) const;
  // Number of bytes of the source that can be read by now. All of them, once the rank's contribution is
  // complete.
  std::size_t readable(int rank, const Source& source) const;
  // Lent data may change once the group has failed.
  bool is_lost(int rank) const {
    if (placement(rank) != Placement::IN_PLACE && placement(rank) != Placement::PRIVATE) return false;
    // so that the failure is looked at after the data were read
    std::atomic_thread_fence(std::memory_order_acquire);
    return context_->failed();
  }
  // Copies the bytes that are readable and not yet copied.
  Copied copy_out(int rank, const Source& source, void* output, std::size_t& copied) const;

  // For any rank: whether it has posted, and all of its contribution can be read.
  bool is_complete(int rank) const;

  void read_late_blocks() { reading_ = Reading::LATE; }
  bool reads_late_blocks() const { return reading_ == Reading::LATE; }

 private:
  enum class Reading { AS_POSTED, LATE };

  bool is_private(int rank) const { return placement(rank) == Placement::PRIVATE && !reads_late_blocks(); }

  Context* context_;
  std::uint64_t sequence_;
  Reading reading_ = Reading::AS_POSTED;
};

}  // namespace lockstep::shared

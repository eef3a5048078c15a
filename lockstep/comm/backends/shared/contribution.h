// Contribution holds this rank's data for a collective, and decides where the other ranks find them. The
// other ranks read it as a Source.
//
//   Contribution contribution(context, sequence);
//   contribution.put(request, data, bytes);              // decides where the data lie
//   contribution.post(call);                             // tells the others
//   contribution.fill(copied);                           // copies in the pieces that are missing
//   ...                                                  // the collective
//   contribution.retire();                               // this rank needs its block no more
//   if (all have finished || !contribution.is_lent()) contribution.end();
//
// Small data go into the post line. Data in the group's memory stay there and are lent to the other ranks. If
// all ranks wait, large private memory passes through windows (shared/window.h, shared/passage.h) or is read
// through the kernel. All other data are copied into a block piece by piece; the other ranks read each piece
// as it arrives.
//
// Access: how other ranks use the caller's memory, or this rank's window.
//
//                lend()                      nobody touches it any more: withdraw(), put_late_...()
//   NOTHING --------------> READ or WRITE ----------------------------------------------------> NOTHING
//                                 |
//                                 +--give_up(): memory that others write is never handed out again
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "lockstep/comm/backends/shared/context.h"
#include "lockstep/comm/backends/shared/part_table.h"

namespace lockstep::shared {

class Contribution {
 public:
  enum class Access { NOTHING, READ, WRITE };

  Contribution(Context& context, std::uint64_t sequence) : context_(&context), sequence_(sequence) {}

  // ---- before the post: one of these, or none
  void put_in_line(const void* data, std::size_t bytes);
  void put_in_block(const void* data, std::size_t bytes);  // complete when posted
  // Chooses a place by the size and location of the data. `request` says which memory the call writes to
  // (shared/request_buffers.h).
  void put(const Request& request, const void* data, std::size_t bytes);
  void put_parts(const Request& request, const Parts& parts);
  // IN_PLACE: the data are in the group's memory.
  void lend(const void* data, Access access);
  // PRIVATE: other ranks read the data where they are.
  void lend_private(std::span<const std::byte> data);
  void lend_parts(const Parts& parts, Placement where);  // all parts IN_PLACE, or all PRIVATE
  // WINDOWED. Returns false if a call of another thread uses the window.
  bool use_window(std::size_t window_bytes);
  // Puts the sizes of the parts at the head of the window. The data follow while other ranks read.
  void lend_window(const Parts& parts);

  // ---- the post and what follows
  void post(const Call& call) { context_->sequencer().post(call, placement_, block_, staged_bytes_); }
  // Copies the missing pieces into the block. `copied(piece)` is called for each piece while it is in the
  // cache.
  template <typename Told> void fill(Told copied);
  // Copies the data into a block after the post, because a rank does not wait or chose another path.
  void put_late_block(const void* data, std::size_t bytes);
  void put_late_parts(const Parts& parts);
  // No other rank touches the caller's memory any more.
  void withdraw() { access_ = Access::NOTHING; }
  // The block may be used again once all ranks have finished.
  void retire();
  // Called when the collective is over for the other ranks, too.
  void end();
  // Called when the group failed or is left. A stopped rank with a claimed slice may still write to the block
  // after it resumes.
  void give_up();

  Placement placement() const { return placement_; }  // as posted
  bool is_lent() const { return access_ != Access::NOTHING; }
  const std::byte* staged_block() const;  // null if the stage gave no block

 private:
  void stage(const void* data, std::size_t bytes);
  void stage_parts(const Parts& parts);
  void publish_late_block();
  void publish(std::uint64_t pieces);

  Context* context_;
  std::uint64_t sequence_;
  Placement placement_ = Placement::NOWHERE;
  Access access_ = Access::NOTHING;
  std::size_t block_ = 0;         // offset, or the address of private memory
  std::size_t staged_bytes_ = 0;  // size of the block, if the stage gave one
  std::vector<Piece> growth_;     // pieces that are not copied in yet
};

// Other ranks read each piece once Share::staged covers it; the last one counts whole.
template <typename Told> void Contribution::fill(Told copied) {
  if (growth_.empty()) return;
  std::byte* const block = context_->arena().at(block_);
  for (const Piece& piece : growth_) {
    for (std::size_t begin = 0; begin < piece.data.size();) {
      const std::size_t at = piece.at + begin;
      const auto now =
          piece.data.subspan(begin, std::min(STAGED_PIECE - at % STAGED_PIECE, piece.data.size() - begin));
      std::memcpy(block + at, now.data(), now.size());
      copied(now);
      begin += now.size();
      if ((at + now.size()) % STAGED_PIECE == 0) publish((at + now.size()) / STAGED_PIECE);
    }
  }
  publish((staged_bytes_ + STAGED_PIECE - 1) / STAGED_PIECE);
  context_->control().ring();
  growth_.clear();
}

}  // namespace lockstep::shared

// CollectiveOperation: a collective of the shared-memory engine, from this rank's side: what all verbs have in common. The
// verbs are in shared/reductions.h (all_reduce, reduce, reduce_scatter) and shared/copies.h (everything else).
//
// Every rank posts what it called and where its contribution lies (segment/layout.h), compares its call with the others' as
// they appear, moves data, and marks the collective as finished, after which it reads nothing of the others' any more.
//
// Contributions. A small one goes into the post line. What already lies in shared memory stays there, lent to the others: the
// operation is over when they have finished. Large private memory of ranks that all wait passes through windows in all_reduce
// (shared/window.h) and the verbs of shared/exchange.h, or is read through the kernel there. Anything
// else is copied into a block, in pieces that others read as they come.
// Where each rank gets a part of its own (scatter, reduce_scatter, all_to_all) the block starts with a table of parts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/comm/backends/segment/rank_set.h"
#include "lockstep/comm/backends/shared/engine.h"
#include "lockstep/comm/call.h"

namespace lockstep::shared {

// One entry of the table at the head of a block: where the part for one rank lies in the owner's segment.
struct Part {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint64_t behind = 0;  // bytes of the block that must be there before all of the part is
};

// What this rank reads of another's contribution.
struct Source {
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::size_t behind = 0;   // as in Part
  bool is_private = false;  // `data` is an address in the contributor's process
};

class CollectiveOperation : public Operation {
 public:
  CollectiveOperation(SharedEngine& engine, Request&& request, std::uint64_t sequence);

  // Announces the call to the other ranks. Throws Mismatch when one of them has announced another.
  void post(std::unique_lock<std::mutex>& lock);
  // Takes over a call that was announced with its contribution in the line, or nothing.
  virtual void adopt_post() {}
  void give_up() override;

  std::uint64_t progress() const override;
  std::vector<int> awaited() const override;
  std::string describe() const override;

 protected:
  // ---- what a verb says
  virtual void contribute() {}  // says where this rank's contribution lies (the functions below)
  virtual bool move(std::size_t slices) = 0;  // true when this rank's part is over
  virtual void take_out() {}                  // the result, when everything is over
  // What `rank` contributes against what is expected here.
  virtual void check_sizes(int /*rank*/, const Call& /*theirs*/) {}
  // Whether `rank` has not done yet what this rank waits for.
  virtual bool owes(int rank) const { return !is_posted(rank); }
  // For what is copied in while the others look already; `piece` has just been copied.
  virtual void copied_in(std::span<const std::byte> /*piece*/) {}

  // ---- how a verb contributes
  void contribute_inline(const void* data, std::size_t bytes);
  void contribute_block(const void* data, std::size_t bytes);  // complete when posted
  void lend(const void* data, bool others_write);
  void contribute_data(const void* data, std::size_t bytes);  // as it suits its size and place
  // Private memory, where it is: PRIVATE.
  void lend_private(std::span<const std::byte> data);
  // By this rank's window: WINDOWED. False when another call, of another thread, uses that.
  bool contribute_by_window(std::size_t window_bytes);
  // Whether a result is written over `data` here: then it cannot be lent.
  bool is_overwritten(std::span<const std::byte> data) const;
  bool is_private(std::span<const std::byte> data) const;  // and not overwritten
  using Parts = std::vector<std::span<const std::byte>>;
  void contribute_parts(const Parts& parts);
  void lend_parts(const Parts& parts, Placement where);  // IN_PLACE or PRIVATE, all of them
  // After the post, of what may come late, because another rank does not wait or has it otherwise.
  void contribute_late_parts(const Parts& parts);
  // Writes the sizes of the parts into this rank's window, for find_part().
  void write_sizes(const Parts& parts);
  // With LOCKSTEP_DEBUG, of an asynchronous call: remembers the caller's buffer, which nobody may touch; whether it does.
  bool guard(const void* data, std::size_t bytes);
  // Throws InvalidArgument if it was touched. Before anything is written there on purpose.
  void check_guard();
  void contribute_late_block(const void* data, std::size_t bytes);

  // ---- what a verb finds
  bool has_posted(int rank);
  bool all_posted();
  Placement placement(int rank) const { return line(rank).placement; }
  // Where `rank`'s contribution of `bytes` bytes begins; checked.
  std::byte* contribution(int rank, std::size_t bytes) const;
  // All of it as a source of `bytes` bytes; the part of it that is for this rank. Records a Mismatch and returns false when
  // that has not `bytes` bytes.
  Source whole(int rank, std::size_t bytes) const;
  bool find_part(int rank, std::size_t bytes, Source& part);
  bool check_part(int rank, std::size_t bytes);
  bool has_late_block(int rank) const {
    return number_for(share(rank).staged.load(std::memory_order_acquire), sequence_) > 0;
  }
  // Bytes of the source that can be read by now, all of them once the rank's contribution is complete.
  std::size_t readable(int rank, const Source& source) const;
  bool is_complete(int rank) const;
  // Copies what is readable and has not been copied; true when nothing is left.
  bool copy_out(int rank, const Source& source, void* output, std::size_t& copied);
  void size_mismatch(int rank, std::size_t expected_bytes, std::size_t found_bytes);
  // What is lent may change once the group has failed.
  bool is_lost(int rank) const {
    if (placement(rank) != Placement::IN_PLACE && placement(rank) != Placement::PRIVATE) return false;
    std::atomic_thread_fence(std::memory_order_acquire);  // looked at behind what was read
    return engine_->failed();
  }

  PostLine& line(int rank) const { return engine_->control().post_line(sequence_, rank); }
  Share& share(int rank) const { return engine_->control().share(sequence_, rank); }
  // Then what the line says can be read, too.
  bool is_posted(int rank) const { return line(rank).sequence.load(std::memory_order_acquire) == sequence_; }
  std::size_t bytes_of(std::uint64_t count) const { return count * size_of(call_.dtype); }
  bool is_root() const { return engine_->rank() == call_.root; }

  const std::uint64_t sequence_;
  const Call call_;
  Placement mine_ = Placement::NOWHERE;
  std::size_t block_ = 0;         // offset of this rank's block
  std::size_t staged_bytes_ = 0;  // of the block, if it is one that the engine frees
  bool lent_ = false;             // others look at the caller's own memory
  bool others_write_ = false;     // to it, at block_
  bool staged_late_ = false;      // what may come late does

  bool try_advance(std::size_t slices) final;

 private:
  struct Piece {
    std::span<const std::byte> data;
    std::size_t at;  // in the block
  };

  Part part_entry(int rank) const;
  bool are_in_place(const Parts& parts) const;
  bool copy_private(int rank, std::uint64_t address, std::span<std::byte> to);
  void stage_parts(const Parts& parts);
  void copy_pieces();
  void publish_late_block();
  void fill();
  void compare_with(int rank);
  void finish();

  std::vector<std::byte> guarded_;  // what was in the buffer
  const void* guarded_at_ = nullptr;
  RankSet posted_;  // ranks whose call was seen and agrees
  std::vector<Piece> growth_;
  bool disagrees_ = false;  // another rank's call does not agree
  bool over_ = false;       // this rank has finished; what it lent may still be read
  bool has_window_ = false;
};

}  // namespace lockstep::shared

// CollectiveOperation: a collective of the shared-memory engine, from this rank's side: what all verbs have in common. The
// verbs are in shared_reductions.h (all_reduce, reduce, reduce_scatter) and shared_copies.h (everything else).
//
// Every rank posts what it called and where its block lies (shared_layout.h), compares its call with the others' as they
// appear, moves data, and marks the collective as finished, after which it reads no other rank's block.
//
// Blocks. A rank that contributes copies its data into a block of its own segment, which lives until all ranks have finished.
// Where each rank gets a part of its own (scatter, reduce_scatter, all_to_all) the block starts with a table of parts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/comm/backends/shared_engine.h"
#include "lockstep/comm/call.h"

namespace lockstep::shared {

// One entry of the table at the head of a block: where the part for one rank lies in the owner's segment.
struct Part {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

class CollectiveOperation : public Operation {
 public:
  CollectiveOperation(std::shared_ptr<SharedEngine> engine, Request request, std::uint64_t sequence);

  // Announces the call to the other ranks. Throws Mismatch when one of them has announced another.
  void post(std::unique_lock<std::mutex>& lock);
  void give_up() override;

  std::uint64_t progress() const override;
  std::vector<int> awaited() const override;
  std::string describe() const override;

 protected:
  // ---- what a verb says
  virtual void stage() {}                     // puts this rank's contribution into its block
  virtual bool move(std::size_t slices) = 0;  // true when this rank's part is over
  virtual void take_out() {}                  // the result, when everything is over
  // What `rank` contributes against what is expected here.
  virtual void check_sizes(int /*rank*/, const Call& /*theirs*/) {}
  virtual bool needs(int /*rank*/) const { return true; }  // whether this rank waits for that one

  // ---- what a verb works with
  void stage_copy(const void* data, std::size_t bytes);
  void stage_parts(const std::vector<std::span<const std::byte>>& parts);
  bool has_posted(int rank);
  bool all_posted();
  std::byte* block_of(int rank, std::size_t bytes) const;
  // The part of `rank`'s block that is for this rank. Records a Mismatch and returns null when it has not `bytes` bytes.
  const std::byte* part_of(int rank, std::size_t bytes);
  void size_mismatch(int rank, std::size_t expected_bytes, std::size_t found_bytes);
  std::size_t bytes_of(std::uint64_t count) const { return count * size_of(call_.dtype); }
  bool is_root() const { return engine_->rank() == call_.root; }

  const std::uint64_t sequence_;
  const Call call_;
  std::size_t block_ = 0;  // offset of this rank's block
  bool staged_ = false;    // the block is a copy that the engine frees
  bool in_place_ = false;  // the block is the caller's memory, to which other ranks write

  bool try_advance(std::size_t slices) final;

 private:
  void compare_with(int rank);
  void finish();

  std::vector<bool> posted_;  // ranks whose call was seen and agrees
  bool disagrees_ = false;    // another rank's does not
};

// The operation of request.verb, which is a collective.
std::shared_ptr<CollectiveOperation> make_collective(const std::shared_ptr<SharedEngine>& engine,
                                                     Request request, std::uint64_t sequence);

}  // namespace lockstep::shared

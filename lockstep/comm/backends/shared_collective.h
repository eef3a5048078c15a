// CollectiveOperation: barrier, broadcast, all_reduce and all_gather of the shared-memory engine, from this rank's side.
//
// Every rank posts what it called and where its block lies (shared_layout.h). Then
//   barrier      is done when all have posted;
//   broadcast    each other rank copies from the root's block;
//   all_gather   each rank copies from each block as it is posted;
//   all_reduce   slices are claimed by whoever is here, reduced from all blocks and written to all blocks; a tensor that
//                already lies in shared memory is its own block, any other is copied into one and out again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/comm/backends/shared_engine.h"

namespace lockstep::shared {

// Bytes of one slice of an all_reduce: small enough that ranks share the work evenly, large enough that a claim costs
// nothing. The same on every rank; never affects the result, which is element by element.
std::size_t slice_bytes(std::size_t total_bytes, int ranks);

class CollectiveOperation : public Operation {
 public:
  CollectiveOperation(std::shared_ptr<SharedEngine> engine, Request request, std::uint64_t sequence);

  // Announces the call to the other ranks. Throws Mismatch when one of them has announced another.
  void post(std::unique_lock<std::mutex>& lock);

  std::uint64_t progress() const override;
  std::vector<int> awaited() const override;
  std::string describe() const override;

 protected:
  bool try_advance(std::size_t slices) override;

 private:
  bool has_posted(int rank);
  bool all_posted();
  void compare_with(int rank);
  void stage_input();
  bool reduce_slices(std::size_t limit);
  bool copy_from_root();
  bool copy_from_everybody();
  void finish();

  std::size_t bytes_of(std::uint64_t count) const { return count * size_of(request_.dtype); }

  const std::uint64_t sequence_;
  const Call call_;
  std::size_t block_ = 0;     // offset of this rank's block
  bool staged_ = false;       // the block is a copy that the engine frees
  std::vector<bool> posted_;  // ranks whose call was seen and agrees
  std::vector<bool> copied_;  // all_gather
};

}  // namespace lockstep::shared

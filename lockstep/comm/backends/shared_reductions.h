// The collectives of the shared-memory engine that combine data.
//
//   all_reduce      slices are claimed by whoever is here, reduced from all blocks and written to all blocks; a tensor that
//   reduce          already lies in shared memory is its own block, any other is copied into one and out again. reduce
//                   writes to the root's block only.
//   reduce_scatter  each rank combines the parts that are meant for it straight into its output.
#pragma once

#include "lockstep/comm/backends/shared_collective.h"

namespace lockstep::shared {

// Bytes of one slice: small enough that ranks share the work evenly, large enough that a claim costs nothing. The same on
// every rank; never affects the result, which is element by element.
std::size_t slice_bytes(std::size_t total_bytes, int ranks);

class SlicedReduction : public CollectiveOperation {
 public:
  using CollectiveOperation::CollectiveOperation;

 protected:
  void stage() override;
  bool move(std::size_t slices) override;
  void take_out() override;

 private:
  void reduce_slice(std::size_t begin, std::size_t bytes);
};

class ReduceScatter : public CollectiveOperation {
 public:
  using CollectiveOperation::CollectiveOperation;

 protected:
  void stage() override { stage_parts(request_.inputs); }
  bool move(std::size_t slices) override;

 private:
  bool find_inputs();

  std::vector<const std::byte*> inputs_;  // by rank, once all have posted
  std::size_t reduced_ = 0;               // bytes of the output that are done
};

}  // namespace lockstep::shared

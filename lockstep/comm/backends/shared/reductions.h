// The collectives of the shared-memory engine that combine data.
//
//   all_reduce      takes one of these paths. All ranks derive it from the same posts:
//   reduce            DIRECT   each rank combines all contributions, which are readable, straight into its
//                              result (inline, one-shot)
//                     SLICES   any rank reduces any slice and writes it to all blocks (shared/slices.h). A
//                              tensor in the group's memory is its own block. Other memory is copied into a
//                              block, if not all ranks wait
//                     WINDOW   all ranks wait: the data pass through their windows (shared/window.h)
//                   reduce writes to the root's block only.
//   reduce_scatter  each rank combines the parts for it straight into its output, as they appear in blocks or
//                   windows (shared/exchange.h). A large output is written past the caches.
#pragma once

#include <optional>

#include "lockstep/comm/backends/segment/rank_addresses.h"
#include "lockstep/comm/backends/shared/collective.h"
#include "lockstep/comm/backends/shared/exchange.h"
#include "lockstep/comm/backends/shared/slices.h"
#include "lockstep/comm/backends/shared/window.h"

namespace lockstep::shared {

class Reduction : public CollectiveOperation {
 public:
  using CollectiveOperation::CollectiveOperation;

 protected:
  void contribute() override;
  bool move(std::size_t slices) override;
  void take_out() override;
  bool owes(int rank) const override;

 private:
  enum class ReductionMethod { UNDECIDED, DIRECT, SLICES, WINDOW };

  void decide();
  void reduce_directly();
  bool reduce_slices(std::size_t slices);
  bool has_block(int rank) const;
  void reduce_slice(std::size_t begin, std::size_t bytes);
  std::size_t bytes() const { return bytes_of(call_.count); }
  bool receives() const { return call_.verb == Verb::ALL_REDUCE || is_root(); }

  ReductionMethod method_ = ReductionMethod::UNDECIDED;
  Path path_ = Path::INLINE;
  std::optional<WindowReduction> window_;
};

class ReduceScatter : public CollectiveOperation {
 public:
  ReduceScatter(Context& context, PendingOperations& pending, Request&& request, std::uint64_t sequence)
      : CollectiveOperation(context, pending, std::move(request), sequence), exchange_(context, sequence) {}

 protected:
  void contribute() override;
  bool move(std::size_t slices) override;
  bool owes(int rank) const override { return exchange_.owes(sources_, rank); }

 private:
  bool reduce_blocks(std::size_t slices);
  // Combines the bytes [begin, begin + bytes) of all inputs into the output at `begin`.
  void combine(const RankAddresses<const std::byte>& inputs, std::size_t begin, std::size_t bytes) const;
  bool find_parts();
  // Finds the next pieces of all ranks, at `reduced_`. Returns false if they cannot be read yet.
  bool find_inputs(std::size_t bytes, RankAddresses<const std::byte>& inputs) const;

  Exchange exchange_;
  std::vector<Source> parts_;  // by rank, once all have posted
  std::size_t reduced_ = 0;    // bytes of the output that are complete
};

}  // namespace lockstep::shared

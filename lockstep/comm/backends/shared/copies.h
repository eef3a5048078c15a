// The collectives of the shared-memory engine that only copy. A receiver copies out of the contributors'
// blocks as they are posted and filled. A rank that only contributes is done once its block is complete. If
// all buffers of a broadcast lie in the group's memory, any rank may copy any slice (shared/slices.h).
#pragma once

#include <vector>

#include "lockstep/comm/backends/shared/collective.h"
#include "lockstep/comm/backends/shared/exchange.h"

namespace lockstep::shared {

class Barrier : public CollectiveOperation {
 public:
  using CollectiveOperation::CollectiveOperation;

 protected:
  bool move(std::size_t) override { return all_posted(); }
};

class Broadcast : public CollectiveOperation {
 public:
  Broadcast(Context& context, PendingOperations& pending, Request&& request, std::uint64_t sequence)
      : CollectiveOperation(context, pending, std::move(request), sequence), exchange_(context, sequence) {}

 protected:
  void contribute() override;
  bool move(std::size_t slices) override;
  bool owes(int rank) const override;

 private:
  bool pass();
  bool copy_slices(std::size_t slices);
  bool all_in_place() const;
  std::size_t bytes() const { return bytes_of(call_.count); }

  Exchange exchange_;
  std::size_t copied_ = 0;
};

class Scatter : public CollectiveOperation {
 public:
  using CollectiveOperation::CollectiveOperation;

 protected:
  void contribute() override;
  bool move(std::size_t slices) override;
  bool owes(int rank) const override {
    return rank == call_.root && !is_root() && !sources_.is_complete(rank);
  }

 private:
  std::size_t copied_ = 0;
};

// The verbs that receive from every rank: all_gather; gather, where only the root receives; and all_to_all,
// where each rank gathers the parts that are for it.
class Gather : public CollectiveOperation {
 public:
  Gather(Context& context, PendingOperations& pending, Request&& request, std::uint64_t sequence)
      : CollectiveOperation(context, pending, std::move(request), sequence),
        exchange_(context, sequence),
        copied_(static_cast<std::size_t>(context.size())) {}

 protected:
  void contribute() override;
  bool move(std::size_t slices) override;
  bool owes(int rank) const override { return receives() && exchange_.owes(sources_, rank); }
  void copied_in(std::span<const std::byte> piece) override;

 private:
  bool copy_from(int rank);
  // Finds the data of `rank` for this rank. Returns false, and records a mismatch, if they have another size
  // than this rank's output for them.
  bool find_source(int rank, std::size_t bytes, Source& source);
  // This rank's data for itself.
  std::span<const std::byte> own_data() const;
  bool has_parts() const { return call_.verb == Verb::ALL_TO_ALL; }
  bool receives() const { return call_.verb != Verb::GATHER || is_root(); }

  Exchange exchange_;
  std::vector<std::size_t> copied_;  // bytes copied so far, by rank
};

}  // namespace lockstep::shared

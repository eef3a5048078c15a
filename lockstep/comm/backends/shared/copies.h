// The collectives of the shared-memory engine that only copy. Whoever receives copies out of the contributors' blocks as they
// are posted and filled; whoever only contributes is done once its block is complete. A broadcast between buffers that all lie
// in the group's memory is copied in slices by whoever is there (shared/slices.h).
#pragma once

#include <vector>

#include "lockstep/comm/backends/shared/exchange.h"

namespace lockstep::shared {

class Barrier : public CollectiveOperation {
 public:
  using CollectiveOperation::CollectiveOperation;

 protected:
  bool move(std::size_t) override { return all_posted(); }
};

class Broadcast : public Exchange {
 public:
  using Exchange::Exchange;

 protected:
  void contribute() override;
  void contribute_late() override {
    if (is_root()) contribute_late_block(request_.input, bytes());
  }
  bool move(std::size_t slices) override;
  bool owes(int rank) const override;
  std::size_t expected_from(int rank) const override {
    return rank == call_.root && !is_root() ? bytes() : 0;
  }

 private:
  bool pass();
  bool copy_slices(std::size_t slices);
  bool all_in_place() const;
  std::size_t bytes() const { return bytes_of(call_.count); }

  std::size_t copied_ = 0;
};

class Scatter : public CollectiveOperation {
 public:
  using CollectiveOperation::CollectiveOperation;

 protected:
  void contribute() override;
  bool move(std::size_t slices) override;
  bool owes(int rank) const override { return rank == call_.root && !is_root() && !is_complete(rank); }

 private:
  std::size_t copied_ = 0;
};

// Verbs that receive from every rank.
class FromEveryRank : public Exchange {
 public:
  FromEveryRank(SharedEngine& engine, Request&& request, std::uint64_t sequence);

 protected:
  bool move(std::size_t slices) override;
  std::size_t expected_from(int rank) const override {
    return request_.outputs[static_cast<std::size_t>(rank)].size();
  }
  // Where what `rank` has for this rank lies, as many bytes as its output here. False when they are not as many (recorded).
  virtual bool find_source(int rank, Source& source) = 0;
  // What this rank has for itself.
  virtual std::span<const std::byte> own_data() const = 0;
  std::vector<std::size_t> copied_;  // bytes, by rank

 private:
  bool copy_from(int rank);
};

// all_gather, and gather, where only the root receives.
class Gather : public FromEveryRank {
 public:
  using FromEveryRank::FromEveryRank;

 protected:
  void contribute() override;
  bool move(std::size_t slices) override { return !receives() || FromEveryRank::move(slices); }
  void check_sizes(int rank, const Call& theirs) override;
  bool owes(int rank) const override { return receives() && FromEveryRank::owes(rank); }
  void copied_in(std::span<const std::byte> piece) override;
  void contribute_late() override { contribute_late_block(request_.input, bytes_of(call_.count)); }
  bool find_source(int rank, Source& source) override;
  std::span<const std::byte> own_data() const override;

 private:
  bool receives() const { return call_.verb == Verb::ALL_GATHER || is_root(); }
};

class AllToAll : public FromEveryRank {
 public:
  using FromEveryRank::FromEveryRank;

 protected:
  void contribute() override;
  void contribute_late() override { contribute_late_parts(request_.inputs); }
  bool find_source(int rank, Source& source) override;
  std::span<const std::byte> own_data() const override;
};

}  // namespace lockstep::shared

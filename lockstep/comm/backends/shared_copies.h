// The collectives of the shared-memory engine that only copy. Whoever receives copies out of the contributors' blocks as they
// are posted; whoever only contributes is done once it has posted.
#pragma once

#include <vector>

#include "lockstep/comm/backends/shared_collective.h"

namespace lockstep::shared {

class Barrier : public CollectiveOperation {
 public:
  using CollectiveOperation::CollectiveOperation;

 protected:
  bool move(std::size_t) override { return all_posted(); }
};

class Broadcast : public CollectiveOperation {
 public:
  using CollectiveOperation::CollectiveOperation;

 protected:
  void stage() override;
  bool move(std::size_t slices) override;
  bool needs(int rank) const override { return rank == call_.root && !is_root(); }
};

class Scatter : public CollectiveOperation {
 public:
  using CollectiveOperation::CollectiveOperation;

 protected:
  void stage() override;
  bool move(std::size_t slices) override;
  bool needs(int rank) const override { return rank == call_.root && !is_root(); }

 private:
  bool copied_ = false;
};

// Verbs that receive from every rank.
class FromEveryRank : public CollectiveOperation {
 public:
  FromEveryRank(std::shared_ptr<SharedEngine> engine, Request request, std::uint64_t sequence);

 protected:
  bool move(std::size_t slices) override;
  // Where the bytes from `rank`, as many as its output has, lie; null when they are not as many (recorded).
  virtual const std::byte* source(int rank) = 0;

 private:
  std::vector<bool> copied_;
};

// all_gather, and gather, where only the root receives.
class Gather : public FromEveryRank {
 public:
  using FromEveryRank::FromEveryRank;

 protected:
  void stage() override;
  bool move(std::size_t slices) override { return !receives() || FromEveryRank::move(slices); }
  void check_sizes(int rank, const Call& theirs) override;
  bool needs(int) const override { return receives(); }
  const std::byte* source(int rank) override;

 private:
  bool receives() const { return call_.verb == Verb::ALL_GATHER || is_root(); }
};

class AllToAll : public FromEveryRank {
 public:
  using FromEveryRank::FromEveryRank;

 protected:
  void stage() override { stage_parts(request_.inputs); }
  const std::byte* source(int rank) override;
};

}  // namespace lockstep::shared

// ProcessGroup: the ranks that communicate with each other. A small value that is cheap to copy.
//
//   const ProcessGroup& world = dist::world();
//   if (world.rank() == 0) std::cout << world.size() << " ranks over " << world.backend_name() << "\n";
//   std::vector<float> loss = {local_loss};
//   comm::all_reduce(world, std::span(loss), ReduceOp::AVG);
//
// Every rank of a group calls the same collectives on it in the same order; each call has a sequence number that errors
// quote. Operations on different groups may run concurrently. Two threads that use one group must be ordered by the
// caller.
//
// After a failure (a dead rank, ranks that disagree, a timeout) the group is closed: pending and later calls throw the
// first failure again. The process lives; it may save what it has, destroy_process_group() and start anew.
#pragma once

#include <memory>
#include <string>

#include "lockstep/comm/backend.h"

namespace lockstep {

class ProcessGroup {
 public:
  explicit ProcessGroup(std::shared_ptr<Backend> backend) : backend_(std::move(backend)) {}

  int rank() const { return backend_->rank(); }
  int size() const { return backend_->size(); }
  const std::string& name() const { return backend_->group_name(); }
  std::string_view backend_name() const { return backend_->name(); }

  // Ends the group for every rank: all pending and later operations throw Aborted with `reason`.
  void abort(const std::string& reason) const { backend_->abort(reason); }
  // Leaves the group. Peers that need this rank later get PeerLost; operations already complete stay complete.
  void close() const { backend_->close(); }

  // Memory on which this group's collectives copy nothing in or out (see Backend::allocate_shared).
  std::shared_ptr<void> allocate_shared(std::size_t bytes) const { return backend_->allocate_shared(bytes); }

  Backend& backend() const { return *backend_; }

 private:
  std::shared_ptr<Backend> backend_;
};

}  // namespace lockstep

// ProcessGroup: the ranks that communicate with each other. A small value that is cheap to copy.
//
//   const ProcessGroup& world = dist::world();
//   if (world.rank() == 0) std::cout << world.size() << " ranks over " << world.backend_name() << "\n";
//   std::vector<float> loss = {local_loss};
//   comm::all_reduce(world, std::span(loss), ReduceOp::AVG);
//
// Every rank of a group calls the same collectives on it in the same order. Each call has a sequence number,
// which errors quote. Operations on different groups may run concurrently. Two threads that use one group
// must be ordered by the caller.
//
// Ranks: rank() and size() count within the group. A root or peer that a function takes is a rank of the
// whole job (a "global rank"), as in torch.distributed; GroupRank{1} is a rank of the group (peer.h).
// ranks() has the global ranks in group order. Messages of errors name ranks of the group. Where a lost or
// late rank has another number in the job, the message adds it: "(rank 3 of the world)".
//
// A process outside the group holds the group all the same, as torch's NON_GROUP_MEMBER. There rank() is -1,
// and every collective returns at once and does nothing. A class that keeps state or returns a result
// (DistributedDataParallel, SyncBatchNorm, GradScaler, Join, checksums, means) throws InvalidArgument there
// instead.
//
// A failure (a dead rank, ranks that disagree, a timeout) closes the group: pending and later calls throw
// the first failure again. The process lives. It may save its state, call destroy_process_group() and start
// anew.
#pragma once

#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/visibility.h"
#include "lockstep/comm/backend.h"

namespace LOCKSTEP_PUBLIC lockstep {

class ProcessGroup {
 public:
  // The world: its ranks are the global ranks.
  explicit ProcessGroup(std::shared_ptr<Backend> backend) : backend_(std::move(backend)) {
    auto ranks = std::make_shared<std::vector<int>>(static_cast<std::size_t>(backend_->size()));
    std::iota(ranks->begin(), ranks->end(), 0);
    ranks_ = std::move(ranks);
  }
  // A group of the given global ranks, in group order; `backend` is null in a process that is not one of
  // them.
  ProcessGroup(std::shared_ptr<Backend> backend, std::vector<int> ranks)
      : backend_(std::move(backend)), ranks_(std::make_shared<const std::vector<int>>(std::move(ranks))) {}

  bool is_member() const { return backend_ != nullptr; }
  int rank() const { return backend_ ? backend_->rank() : -1; }
  int size() const { return static_cast<int>(ranks_->size()); }
  const std::vector<int>& ranks() const { return *ranks_; }
  const std::string& name() const;
  std::string_view backend_name() const { return backend_ ? backend_->name() : "none"; }

  // Ends the group for every rank: all pending and later operations throw Aborted with `reason`.
  void abort(const std::string& reason) const {
    if (backend_) backend_->abort(reason, ErrorCode::ABORTED, -1);
  }
  // Leaves the group. Peers that need this rank later get PeerLost; operations already complete stay
  // complete.
  void close() const {
    if (backend_) backend_->close();
  }

  // The same group, for buffers in the memory of that device. A backend that does not serve the device
  // refuses the call.
  ProcessGroup on(DeviceType device) const {
    ProcessGroup group = *this;
    group.device_ = device;
    return group;
  }
  DeviceType device() const { return device_; }

  // Memory on which this group's collectives copy nothing in or out (see Backend::allocate_shared).
  std::shared_ptr<void> allocate_shared(std::size_t bytes) const { return backend().allocate_shared(bytes); }

  // Both throw InvalidArgument in a process that is not a member. `what` is the name of the function that
  // needs the group.
  Backend& backend() const;
  void require_member(std::string_view what) const;
  std::shared_ptr<Backend> shared_backend() const {
    return backend_;
  }  // null in a process that is not a member

 private:
  std::shared_ptr<Backend> backend_;
  std::shared_ptr<const std::vector<int>> ranks_;
  DeviceType device_ = DeviceType::CPU;
};

}  // namespace lockstep

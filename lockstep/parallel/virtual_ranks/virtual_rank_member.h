// VirtualRankMember: an object with a state of its own for each virtual rank. It is told of their turns. A
// DistributedDataParallel is one.
//
//   class Replica : public VirtualRankMember { ... };
//   const auto replica = std::make_shared<Replica>();
//   add_virtual_rank_member(replica);            // until it is destroyed
//
// Calls  begin_round, then begin_turn and end_turn for each virtual rank of this process in order, then
//        end_round. If an exception or a break leaves a round, it ends with leave_round(). A member that is
//        added during a round is told from the next one on.
#pragma once

#include <memory>

#include "lockstep/tensor/named_tensors.h"

namespace lockstep {

class VirtualRankMember {
 public:
  VirtualRankMember() = default;
  VirtualRankMember(const VirtualRankMember&) = delete;
  VirtualRankMember& operator=(const VirtualRankMember&) = delete;
  virtual ~VirtualRankMember() = default;

  virtual void begin_round() = 0;
  virtual void begin_turn(int virtual_rank) = 0;
  virtual void end_turn(int virtual_rank) = 0;
  virtual void end_round() = 0;
  virtual void leave_round() noexcept = 0;

  // Called between rounds: copies of the virtual rank's own state, and back. Names and shapes are the same
  // for every virtual rank.
  virtual NamedTensors state(int virtual_rank) const = 0;
  virtual void load_state(int virtual_rank, const NamedTensors& state) = 0;
};

void add_virtual_rank_member(const std::shared_ptr<VirtualRankMember>& member);

}  // namespace lockstep

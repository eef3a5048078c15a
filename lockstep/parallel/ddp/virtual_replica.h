// VirtualReplica: connects a DistributedDataParallel with the turns of virtual ranks: its gradients through
// the Reducer, and the buffers of each virtual rank.
//
//   const auto replica = std::make_shared<VirtualReplica>(reducer, names, TurnBuffers(...));
//   add_virtual_rank_member(replica);
//   replica->before_forward();               // a forward in training that is averaged
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/parallel/ddp/reducer.h"
#include "lockstep/parallel/replicas/turn_buffers.h"
#include "lockstep/parallel/virtual_ranks/virtual_rank_member.h"

namespace lockstep {

// Throws InvalidArgument for options that virtual ranks exclude. Virtual ranks belong to the world and take
// turns. So options are refused that need all of them at once, or that depend on the number of processes.
void check_for_virtual_ranks(const ReducerOptions& options, const ProcessGroup& group,
                             const NamedTensors& parameters);

class VirtualReplica : public VirtualRankMember {
 public:
  // `names` are the buffers' names, in their order.
  VirtualReplica(std::shared_ptr<Reducer> reducer, std::vector<std::string> names, TurnBuffers buffers);

  void before_forward() { buffers_.before_forward(); }

  void begin_round() override;
  void begin_turn(int virtual_rank) override;
  void end_turn(int virtual_rank) override;
  void end_round() override;
  void leave_round() noexcept override;
  NamedTensors state(int virtual_rank) const override;
  void load_state(int virtual_rank, const NamedTensors& state) override;

 private:
  const std::shared_ptr<Reducer> reducer_;
  const std::vector<std::string> names_;
  TurnBuffers buffers_;
};

}  // namespace lockstep

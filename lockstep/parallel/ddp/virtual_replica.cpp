#include "lockstep/parallel/ddp/virtual_replica.h"

#include "lockstep/base/str.h"
#include "lockstep/job/job.h"
#include "lockstep/parallel/ddp/ddp_wrapper.h"
#include "lockstep/parallel/ddp/virtual_turns.h"

namespace lockstep {

void check_for_virtual_ranks(const ReducerOptions& options, const ProcessGroup& group,
                             const NamedTensors& parameters) {
  if (!options.virtual_ranks) return;
  const auto refuse = [&](const std::string& what) {
    DDP_WRAPPER.refuse(group, what + " with virtual ranks; start the job without them to use it");
  };
  if (group.size() != get_world_size()) refuse("a group of some of the processes is not possible");
  if (options.static_graph) refuse("static_graph is not possible");
  if (options.backward_passes_per_step > 1)
    refuse("backward_passes_per_step above 1 is not possible (no_sync() is)");
  if (!options.sparse_gradients.empty())
    refuse("a sparse gradient (" + options.sparse_gradients.front() + ") is not possible");
  for (const auto& [name, tensor] : parameters) {
    if (!tensor.device().is_cpu()) refuse(lockstep::str("a model on ", tensor.device(), " is not possible"));
  }
}

VirtualReplica::VirtualReplica(std::shared_ptr<Reducer> reducer, std::vector<std::string> names,
                               TurnBuffers buffers)
    : reducer_(std::move(reducer)), names_(std::move(names)), buffers_(std::move(buffers)) {}

void VirtualReplica::begin_round() {
  reducer_->on_turn(TurnEvent::BEGIN_ROUND);
  buffers_.begin_round();
}

void VirtualReplica::begin_turn(int virtual_rank) {
  reducer_->on_turn(TurnEvent::BEGIN_TURN, virtual_rank);
  buffers_.begin_turn(virtual_rank);
}

void VirtualReplica::end_turn(int virtual_rank) {
  reducer_->on_turn(TurnEvent::END_TURN, virtual_rank);
  buffers_.end_turn(virtual_rank);
}

void VirtualReplica::end_round() {
  reducer_->on_turn(TurnEvent::END_ROUND);
  buffers_.end_round();
}

void VirtualReplica::leave_round() noexcept {
  reducer_->on_turn(TurnEvent::LEAVE_ROUND);
  buffers_.end_round();
}

NamedTensors VirtualReplica::state(int virtual_rank) const {
  NamedTensors state;
  const std::vector<at::Tensor> values = buffers_.state(virtual_rank);
  for (std::size_t i = 0; i < values.size(); ++i) state.emplace_back(names_[i], values[i]);
  return state;
}

void VirtualReplica::load_state(int virtual_rank, const NamedTensors& state) {
  std::vector<at::Tensor> values;
  for (const auto& [name, tensor] : state) values.push_back(tensor);
  buffers_.load(virtual_rank, values);
}

}  // namespace lockstep

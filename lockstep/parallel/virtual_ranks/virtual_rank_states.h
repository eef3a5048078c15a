// virtual_rank_states(): the state of each virtual rank of this process, for a checkpoint that another number
// of processes loads.
//
//   for (const VirtualRankState& state : virtual_rank_states()) write(state.virtual_rank, state.tensors);
//   load_virtual_rank_states(states);  // later: at least those of this process's virtual ranks
//
// Tensors  "random_state"        uint8, of libtorch's default CPU generator; absent before the first loop
//          "threads"             int64, the number of threads that made the sums: another number gives other
//                                bits
//          "model.0.bn.running_mean"  a buffer; models in the order in which they were wrapped
// When     between loops over virtual_ranks(), after the models have been wrapped. The model itself is loaded
//          as without virtual ranks, before this.
// Without  virtual ranks the list is empty, and loading a list with states is refused.
// Logs     a warning if the number of threads differs from that of the state.
// Throws   InvalidArgument: within a loop; a virtual rank of this process without a state; a tensor that is
//          missing, unknown or of another shape. Nothing is loaded then.
#pragma once

#include <vector>

#include "lockstep/tensor/named_tensors.h"

namespace lockstep {

struct VirtualRankState {
  int virtual_rank = 0;
  NamedTensors tensors;
};

// Returns copies.
std::vector<VirtualRankState> virtual_rank_states();
void load_virtual_rank_states(const std::vector<VirtualRankState>& states);

}  // namespace lockstep

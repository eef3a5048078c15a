// The state of any optimiser as named tensors, for files and checkpoints. libtorch's own optimisers write
// their state only into archives (torch::save), which hold addresses and are read as a whole.
//
//   torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-3));
//   if (dist::get_rank() == 0) dist::save_state_dict(dist::state_dict(optimizer), "optimizer.safetensors");
//   dist::load_state_dict(optimizer, dist::load_tensors("optimizer.safetensors"));
//
// Optimisers  torch::optim::SGD, Adam, AdamW, RMSprop and Adagrad. Those of lockstep::optim, and any
//             NamedState, by their own state_dict(). LBFGS is refused: its history is a list per optimiser,
//             not a state per parameter.
// Names       Python's state_dict(), flattened: "state.I.exp_avg" for the I-th parameter of all groups
//             together, "param_groups.G.lr", and "param_groups.G.params", the numbers of the group's
//             parameters. The header of optimizer.h shows how Python reads it.
// The bits    An optimiser that loads the state continues with the bits of the saved one. The state has every
//             option of every group. Ranks that stepped alike have equal states. Python's    options that
//             libtorch lacks may be in a loaded state. Those that change no result (foreach, fused,
//             capturable, differentiable, initial_lr) are ignored. maximize must be false, and
//             decoupled_weight_decay true for AdamW alone.
// Ranks       Neither function communicates.
// Fails       InvalidArgument: an optimiser of another class, or a state that does not fit. load_state_dict
//             lists every mismatch, and has then changed nothing.
#pragma once

#include <torch/optim/optimizer.h>

#include "lockstep/tensor/named_tensors.h"

namespace lockstep {

// An optimiser of another kind that provides its own state, in the same form: ZeroRedundancyOptimizer, or a
// program's own.
class NamedState {
 public:
  virtual NamedTensors state_dict() const = 0;
  virtual void load_state_dict(const NamedTensors& tensors) = 0;

 protected:
  ~NamedState() = default;
};

// Tensors of parameters are the optimiser's own, not copies.
NamedTensors state_dict(const torch::optim::Optimizer& optimizer);

// Copies, in the dtypes of the parameters. Replaces all state: a parameter without state in `tensors` has
// none afterwards. Options that are not in `tensors` stay as they are.
void load_state_dict(torch::optim::Optimizer& optimizer, const NamedTensors& tensors);

}  // namespace lockstep

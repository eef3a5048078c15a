// The state of any optimiser as named tensors, for files and checkpoints: libtorch's own optimisers keep
// theirs in archives only (torch::save), which hold addresses and are read as a whole.
//
//   torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-3));
//   if (dist::get_rank() == 0) dist::save_state_dict(dist::state_dict(optimizer), "optimizer.safetensors");
//   dist::load_state_dict(optimizer, dist::load_tensors("optimizer.safetensors"));
//
// Optimisers  torch::optim::SGD, Adam, AdamW, RMSprop and Adagrad; those of lockstep::optim, and what is
//             a NamedState, by their own state_dict(). LBFGS is refused: its history is a list per optimiser,
//             not a state per parameter.
// Names       Python's state_dict(), flattened: "state.I.exp_avg" for the I-th parameter of all groups
//             together, "param_groups.G.lr", and "param_groups.G.params", the numbers of the group's
//             parameters. Python reads it as the head of optimizer.h shows, and the other way round.
// The bits    an optimiser that loads the state goes on with the bits of the one that was saved. Every
//             option of every group is in it. Ranks that stepped alike have equal states.
// Python's    options that libtorch lacks may be in a state that is loaded. Those that change no result
//             (foreach, fused, capturable, differentiable, initial_lr) are passed over. maximize must be
//             false, and decoupled_weight_decay true for AdamW alone.
// Ranks       neither function communicates.
// Fails       InvalidArgument: an optimiser of another class, or a state that does not fit. load_state_dict
//             lists everything that does not fit, and has then changed nothing.
#pragma once

#include <torch/optim/optimizer.h>

#include "lockstep/tensor/named_tensors.h"

namespace lockstep {

// An optimiser of another kind that says itself what its state is, in the same form: ZeroRedundancyOptimizer,
// or one of a program's own.
class NamedState {
 public:
  virtual NamedTensors state_dict() const = 0;
  virtual void load_state_dict(const NamedTensors& tensors) = 0;

 protected:
  ~NamedState() = default;
};

// Tensors of parameters are the optimiser's own, no copies.
NamedTensors state_dict(const torch::optim::Optimizer& optimizer);

// Copies, in the dtypes of the parameters. Replaces all state: a parameter without state in `tensors` has
// none afterwards. Options that are not in it stay as they are.
void load_state_dict(torch::optim::Optimizer& optimizer, const NamedTensors& tensors);

}  // namespace lockstep

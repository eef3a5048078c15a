// The state of a model of which each rank holds pieces, parts or both: pieces of layers (tensor parallel),
// layers (a stage of a pipeline), replicas of these, and parts of an optimiser's state (ShardedDataParallel).
// For checkpoints, and for the norm of the gradients.
//
//   namespace tp = dist::tensor_parallel;
//   dist::optim::AdamW optimizer(net->named_parameters().pairs(), dist::optim::AdamWOptions(3e-4));
//   tp::ModelState model_state(*net);
//   tp::OptimizerState optimizer_state(optimizer, *net);
//   dist::CheckpointState state;
//   state.add("model", model_state).add("optimizer", optimizer_state);
//   dist::save_checkpoint("runs/7", state, {.step = 100});
//
//   tp::clip_grad_norm_(*net, 1.0, group);                // between backward() and step()
//
// With ShardedDataParallel around the net, whose optimiser has parts of these pieces:
//
//   tp::ModelState model_state(model, *net);
//   tp::OptimizerState optimizer_state(sharded_optimizer, *net);
//
// Names       and shapes in a checkpoint are those of the model that one process holds whole: each rank
//             writes what it holds as parts of the whole parameters (checkpoint/). So any mesh loads what any
//             other saved, also one process with the plain model of the same names. The names of `net` are
//             those of the whole model, so a stage keeps the numbers of its layers.
//             write_full_state_dict("model.safetensors", model_state) makes one file of it
//             (checkpoint/full_state_dict.h).
// Which       modules have pieces: those of this room (HasPieces). All other parameters and buffers of `net`
//             are whole. A tensor that several ranks hold counts as equal on them, and one of them writes it.
// Optimiser   Lockstep's, with named parameters. State of a piece's shape (moments) is written in pieces,
//             too. For loading a rank reads the whole tensors one by one, and holds those of which it has a
//             part until all are read.
// Lifetime    both refer to the objects that they are made of.
// Fails       InvalidArgument: an optimiser without names; a checkpoint with another shape.
//             reduce_norms: InvalidArgument for such an optimiser. clip_grad_norm_: for a stage of a
//             pipeline; as a collective.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/checkpoint/checkpoint_item.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/parallel/tensor_parallel/parameter_piece.h"

namespace torch::nn {
class Module;
}

namespace lockstep::tensor_parallel {

// The pieces of all modules within `net`, by the names of its state dict.
std::vector<ParameterPiece> named_pieces(const torch::nn::Module& net);

class ModelState : public HasCheckpointItem {
 public:
  explicit ModelState(torch::nn::Module& net) : net_(net) {}
  // `wrapper`: of the net, which saves and loads its parameters.
  ModelState(HasCheckpointItem& wrapper, torch::nn::Module& net) : net_(net), wrapper_(&wrapper) {}
  std::shared_ptr<CheckpointItem> checkpoint_item() override;

 private:
  torch::nn::Module& net_;
  HasCheckpointItem* const wrapper_ = nullptr;
};

class OptimizerState : public HasCheckpointItem {
 public:
  // An optimiser that brings an item of its own (ShardedOptimizer) is saved by that.
  OptimizerState(optim::Optimizer& optimizer, torch::nn::Module& net) : optimizer_(optimizer), net_(net) {}
  std::shared_ptr<CheckpointItem> checkpoint_item() override;

 private:
  optim::Optimizer& optimizer_;
  torch::nn::Module& net_;
};

// clip_grad_norm_ of optim/clip_grad.h for the whole model: pieces of all ranks count, and whole parameters
// count once. Returns the norm before clipping, on every rank. Collective.
// NOLINTNEXTLINE(readability-identifier-naming): torch's name
double clip_grad_norm_(const torch::nn::Module& net, double max_norm, const ProcessGroup& group);

// LARS and LAMB take the norm of each whole parameter from then on, instead of the piece's own: without this
// call they refuse to step. `group`: the tensor-parallel one, over which step() is collective. A
// ShardedOptimizer takes it as well. Other optimisers take no norms. With stages of a pipeline call
// GradientNorm::reduce_norms() instead (parallel/model_parallel).
void reduce_norms(optim::Optimizer& optimizer, const torch::nn::Module& net, const ProcessGroup& group);

}  // namespace lockstep::tensor_parallel

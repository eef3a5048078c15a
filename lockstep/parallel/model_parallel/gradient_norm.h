// GradientNorm: the norm of a model's gradients, and clipping by it, where the model lies on a whole mesh:
// pieces of layers on tensor-parallel ranks, layers on pipeline stages, copies on data-parallel ranks.
//
//   const dist::ModelParallel mesh = dist::init_model_parallel({.tensor = 2, .pipeline = 2});
//   dist::GradientNorm norm(*net, mesh);                       // once
//   pipeline.step(batch.data, batch.target);
//   double before = norm.clip_grad_norm_(model, 1.0);          // model: the ShardedDataParallel around net
//   optimizer.step();
//
// Without ShardedDataParallel, once the gradients in .grad are averaged over the copies:
//
//   for (const at::Tensor& parameter : net->parameters())
//     dist::all_reduce(parameter.grad(), dist::ReduceOp::AVG, mesh.get_data_parallel_group(true));
//   norm.clip_grad_norm_(1.0);
//
// LARS and LAMB take norms themselves. One call tells them what ranks have the rest of parameters and model,
// so that steps and LAMB's max_grad_norm are those of one process:
//
//   dist::optim::LAMB lamb(net->named_parameters().pairs(), dist::optim::LAMBOptions(6e-3).max_grad_norm(1));
//   norm.reduce_norms(lamb);                                   // once, before the first step
//
// Counts      each element of the whole model once: of a piece on every tensor-parallel rank, of what these
//             have whole on one of them, of what several stages hold (tied embeddings) on the first of them.
// Names       of `net` are those of the whole model, and say what several stages hold.
// The bits    Sums are float64 and equal on all ranks. Another mesh adds in another order.
// Collective  the constructor over the pipeline group; clip_grad_norm_() over the model-parallel group, and
//             with ShardedDataParallel over its group as well. After reduce_norms() each step of LARS and
//             LAMB, over the tensor-parallel group, and over the model-parallel one if max_grad_norm is
//             finite.
// Lifetime    refers to the net.
// Fails       InvalidArgument: max_norm below 0; an optimiser whose parameters have no names. As the
//             collectives.
// Source      Megatron-LM, clip_grads.py: which parameters count.
#pragma once

#include <string>
#include <unordered_set>

#include "lockstep/comm/process_group.h"
#include "lockstep/job/model_parallel.h"

namespace torch::nn {
class Module;
}

namespace lockstep {

namespace optim {
class Optimizer;
}
class ShardedDataParallelBase;

class GradientNorm {
 public:
  GradientNorm(const torch::nn::Module& net, const ModelParallel& mesh);

  // Scales the gradients to a norm of at most `max_norm`, as torch's. Returns the norm from before, on every
  // rank.
  double clip_grad_norm_(ShardedDataParallelBase& model,  // NOLINT(readability-identifier-naming)
                         double max_norm);
  double clip_grad_norm_(double max_norm);  // NOLINT(readability-identifier-naming)

  // A ShardedOptimizer as well. Does not communicate.
  void reduce_norms(optim::Optimizer& optimizer) const;

  // Whether this rank counts the parameter of that name.
  bool counts(const std::string& name) const { return counted_.contains(name); }

 private:
  double over_model(double squares) const;

  const torch::nn::Module& net_;
  const ProcessGroup group_;   // all pieces of one copy
  const ProcessGroup tensor_;  // those of the same layers
  std::unordered_set<std::string> counted_;
};

}  // namespace lockstep

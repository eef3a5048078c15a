// SplitBackward: a backward in two halves. The first computes the gradients of the inputs, for which the
// previous stage of a pipeline waits. The second computes the gradients of the parameters, later.
//
//   SplitBackward backward({loss}, {at::ones({})}, {x});   // x: a leaf that requires a gradient
//   send(backward.input_gradients()[0]);
//   backward.accumulate();                                 // adds to the .grad of the parameters
//
// Second halves of the same function that run one after the other:
//
//   second.take_weights_of(first);                         // their gradients are computed by
//   second.accumulate() first.accumulate();                                    // all others, as biases
//   second.accumulate();
//
// How         An operation lies on the path if it leads from an output to an input. The first half runs the
//             path, and asks each operation on it for the gradient of the next operation alone. Where an
//             operation of the path also leads to a parameter (a matrix product leads to its weight), the
//             gradient of its output is kept. Then these operations are cut off from the path. The second
//             half starts at all of them with the kept gradients.
// Costs       Each matrix product of a backward is computed once: libtorch's operations compute only the
//             gradients that are asked for. An operation that cannot (a torch::autograd::Function of the
//             program) runs twice; its gradients are right.
// Weights     of linear layers get their gradients in place, and those of several micro-batches as one
// product
//             where their rows are few (autograd/weight_gradients.h).
// Memory      After the first half, the path is freed except for the operations that lead to parameters.
// Shared      A parameter may be used by several operations; a hook on a tensor of the path runs in both
//             halves.
// Undefined   A gradient of an output that is undefined counts as zeros. The gradient of an input that no
//             output depends on is undefined.
// No inputs   Without an input that requires a gradient, the second half is the whole backward.
// Throws      what the operations throw. After that the object can only be destroyed.
// Source      Qi et al., "Zero Bubble Pipeline Parallelism", 2024, arXiv 2401.10241, section 2.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>

#include <memory>
#include <vector>

#include "lockstep/autograd/weight_gradients.h"

namespace lockstep {

class SplitBackward {
 public:
  // Runs the first half.
  SplitBackward(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& gradients,
                const std::vector<at::Tensor>& inputs);
  SplitBackward(SplitBackward&&) = default;
  SplitBackward& operator=(SplitBackward&&) = default;

  // In the order of the inputs.
  const std::vector<at::Tensor>& input_gradients() const { return input_gradients_; }
  // Runs the second half, once.
  void accumulate();
  // Before both second halves, of which `earlier` runs first. Nothing happens where taking does not pay.
  void take_weights_of(SplitBackward& earlier);

 private:
  // An operation of the path that leads to parameters, cut off from the path.
  struct Fork {
    torch::autograd::Edge start;
    at::Tensor gradient;
    std::shared_ptr<WeightGradient> of_weight;  // null: autograd computes it
  };
  std::vector<at::Tensor> input_gradients_;
  // Where the second half starts, and with which gradients.
  std::vector<torch::autograd::Edge> starts_;  // outputs that lead to no input
  std::vector<at::Tensor> kept_;               // of these
  std::vector<Fork> forks_;
};

}  // namespace lockstep

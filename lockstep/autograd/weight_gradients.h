// Gradients of weights, added straight to .grad: what a backward does for the weight of a linear layer, with
// less traffic to the memory.
//
//   at::Tensor loss = loss_of(net->forward(x));
//   dist::add_weight_gradients_in_place({loss});
//   loss.backward();                                   // the same gradients, up to rounding
//
// Why         A backward makes the gradient of a weight as a tensor of its own and adds that to .grad: 12
//             bytes an element go through the memory beside the product itself. Where a product has few rows,
//             as that of a micro-batch, this takes longer than its arithmetic allows.
// How         The product adds to what is there (beta = 1 of BLAS's gemm). The edge of the graph to the
//             weight is cut off, and a hook in front of the operation computes the weight's gradient.
// Which       operations addmm and mm whose second factor is a parameter or the transpose of one, as those of
//             torch::nn::Linear. All else keeps autograd's way: a weight with a hook, which a
//             DistributedDataParallel has on each, and an operation with a hook or with saved-tensor hooks.
// Once        The graph is for one backward afterwards, without create_graph.
// Together    Gradients of one weight from several backwards can be one product of all their rows, so that
// .grad
//             is read and written once: take().
// Source      gradient_accumulation_fusion of Megatron-LM's layers does the first.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include <memory>
#include <vector>

namespace lockstep {

// The weight's part of an operation's backward.
class WeightGradient {
 public:
  // input: the first factor, rows x in. The second one is `weight`, or its transpose.
  WeightGradient(at::Tensor input, at::Tensor weight, bool is_transposed);

  // From now on add() of this one adds what `earlier` would, too, and add() of `earlier` nothing. `gradient`:
  // of the output of the earlier operation. Returns false, and changes nothing, if the weights differ or the
  // rows are so many that to copy them one behind the other costs more than it saves.
  bool take(WeightGradient& earlier, const at::Tensor& gradient);

  // Adds to the weight's .grad. `gradient`: of the operation's output.
  void add(const at::Tensor& gradient);

 private:
  struct Rows {
    at::Tensor input, gradient;
  };
  at::Tensor input_;  // undefined if another one took this
  at::Tensor weight_;
  bool is_transposed_;
  std::vector<Rows> taken_;  // the earliest first
};

// Of one operation. Null, and nothing is changed, if autograd keeps its way.
std::shared_ptr<WeightGradient> add_weight_gradient_in_place(torch::autograd::Node& node);

// Of all operations that lead from these.
void add_weight_gradients_in_place(const torch::autograd::edge_list& starts);
void add_weight_gradients_in_place(const std::vector<at::Tensor>& outputs);

}  // namespace lockstep

// vocab_parallel_cross_entropy: the cross entropy of logits whose classes are shared out over the ranks of a
// tensor-parallel group. The whole logits exist nowhere.
//
//   namespace tp = dist::tensor_parallel;
//   at::Tensor own = tp::column_parallel_linear(x, wte->weight, {}, {.group = group});
//   at::Tensor loss = tp::vocab_parallel_cross_entropy(own, targets, group, {.vocab_size = 50257});
//
// Value       that of torch::nn::functional::cross_entropy on all classes, with label_smoothing,
//             ignore_index and reduction as there, and the same on all ranks. The smoothing counts all
//             classes, so it does not depend on the number of ranks. If all targets are ignored, the mean
//             is NaN.
// Classes     of rank r are vocab_range(vocab_size, r, ranks), as a VocabParallelEmbedding has them.
//             Without vocab_size all ranks have equally many.
// Exchanges   for each target the largest logit; then the sum of exponentials, the target's logit and,
//             with smoothing, the sum of logits. Backward exchanges nothing.
// Precision   float32 at least.
// Memory      keeps one tensor of the logits' size, the probabilities, for backward.
// Fails       InvalidArgument: shapes that do not go together, targets that are not int64, a target that
//             is neither a class nor ignore_index, a smoothing outside of [0, 1], another number of
//             classes than the rank's; backward(create_graph = true).
// Source      Shoeybi et al., 2019, arXiv 1909.08053; Szegedy et al., 2015, arXiv 1512.00567 (smoothing).
#pragma once

#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>

#include "lockstep/comm/process_group.h"

namespace lockstep::tensor_parallel {

struct VocabParallelCrossEntropyOptions {
  std::int64_t vocab_size = 0;  // classes of all ranks; 0: as many as this rank has, times the ranks
  double label_smoothing = 0;
  std::int64_t ignore_index = -100;
  at::Reduction::Reduction reduction = at::Reduction::Mean;
};

// `logits`: [..., classes of this rank]; `targets`: int64 [...], classes of all ranks.
at::Tensor vocab_parallel_cross_entropy(const at::Tensor& logits, const at::Tensor& targets,
                                        const ProcessGroup& group,
                                        const VocabParallelCrossEntropyOptions& options = {});

}  // namespace lockstep::tensor_parallel

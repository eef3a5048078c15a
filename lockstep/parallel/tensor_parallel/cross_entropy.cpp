#include "lockstep/parallel/tensor_parallel/cross_entropy.h"

#include <ATen/TensorIndexing.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sub.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

#include "lockstep/base/str.h"
#include "lockstep/comm/purpose.h"
#include "lockstep/parallel/tensor_parallel/parameter_piece.h"
#include "lockstep/parallel/wrapper.h"
#include "lockstep/tensor/collectives.h"

namespace lockstep::tensor_parallel {
namespace {

using Tensors = torch::autograd::variable_list;
using torch::autograd::AutogradContext;

constexpr Wrapper CROSS_ENTROPY{"vocab_parallel_cross_entropy"};

// One row of logits for each target.
struct Task {
  at::Tensor targets;  // flat
  Stretch classes;     // of this rank
  std::int64_t vocab_size;
  double smoothing;
  std::int64_t ignore_index;
  ProcessGroup group;
};

// The targets that this rank has: their rows, and their columns among its logits.
struct OwnTargets {
  at::Tensor rows, columns;

  explicit OwnTargets(const Task& task) {
    const at::Tensor local = task.targets - task.classes.begin;
    rows =
        (local.ge(0) & local.lt(task.classes.size) & task.targets.ne(task.ignore_index)).nonzero().squeeze(1);
    columns = local.index_select(0, rows);
  }
};

// Losses of each target, 0 for ignored ones. With z = logits - largest, S = sum of exp(z), V classes:
//   loss = log S - (1 - smoothing) z[target] - smoothing / V * sum of z
//   d loss / d z = exp(z) / S - (1 - smoothing) [target] - smoothing / V
class CrossEntropy : public torch::autograd::Function<CrossEntropy> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& logits, const Task& task) {
    const Acting acting(Purpose::TENSOR_PARALLEL);
    const OwnTargets own(task);
    at::Tensor largest = std::get<0>(logits.max(-1));
    all_reduce(largest, ReduceOp::MAX, task.group);
    at::Tensor shifted = logits - largest.unsqueeze(1);

    // [sum of exponentials, target's logit, sum of logits], of this rank's classes, then of all
    at::Tensor sums = at::empty({task.smoothing > 0 ? 3 : 2, logits.size(0)}, logits.options());
    sums[1].zero_().index_copy_(0, own.rows, shifted.index({own.rows, own.columns}));
    if (task.smoothing > 0) sums[2].copy_(shifted.sum(-1));
    shifted.exp_();
    sums[0].copy_(shifted.sum(-1));
    all_reduce(sums, ReduceOp::SUM, task.group);

    at::Tensor losses = sums[0].log() - sums[1] * (1 - task.smoothing);
    if (task.smoothing > 0) losses -= sums[2] * (task.smoothing / static_cast<double>(task.vocab_size));
    const at::Tensor ignored = task.targets.eq(task.ignore_index);
    context->save_for_backward({shifted.div_(sums[0].unsqueeze(1)), own.rows, own.columns, ignored});
    context->saved_data["smoothing"] = task.smoothing;
    context->saved_data["vocab_size"] = task.vocab_size;
    return losses.masked_fill_(ignored, 0);
  }

  static Tensors backward(AutogradContext* context, const Tensors& incoming) {
    if (at::GradMode::is_enabled())
      CROSS_ENTROPY.refuse("backward(create_graph = true): there is no derivative of its gradient");
    const Tensors saved = context->get_saved_variables();
    const double smoothing = context->saved_data["smoothing"].toDouble();
    const auto vocab_size = static_cast<double>(context->saved_data["vocab_size"].toInt());
    const at::Tensor slopes = incoming[0].masked_fill(saved[3], 0).unsqueeze(1);
    at::Tensor gradient = smoothing > 0 ? saved[0] - smoothing / vocab_size : saved[0].clone();
    gradient.index_put_({saved[1], saved[2]}, gradient.index({saved[1], saved[2]}) - (1 - smoothing));
    return {gradient.mul_(slopes), at::Tensor()};
  }
};

void check(const at::Tensor& logits, const at::Tensor& targets, const ProcessGroup& group,
           const VocabParallelCrossEntropyOptions& options, std::int64_t vocab_size) {
  if (logits.dim() < 2 || logits.sizes().slice(0, logits.dim() - 1) != targets.sizes())
    CROSS_ENTROPY.refuse(group, lockstep::str("logits have sizes ", logits.sizes(), " and targets ",
                                              targets.sizes(), "; expected [..., classes] and [...]"));
  if (targets.scalar_type() != at::kLong)
    CROSS_ENTROPY.refuse(group,
                         lockstep::str("targets are ", toString(targets.scalar_type()), ", expected int64"));
  if (!(options.label_smoothing >= 0 && options.label_smoothing <= 1))
    CROSS_ENTROPY.refuse(
        group, lockstep::str("label_smoothing is ", options.label_smoothing, "; it lies between 0 and 1"));
  const std::int64_t expected = vocab_range(vocab_size, group.rank(), group.size()).size;
  if (logits.size(-1) != expected || expected == 0)
    CROSS_ENTROPY.refuse(group, lockstep::str("the logits have ", logits.size(-1), " classes, and of ",
                                              vocab_size, " this rank has ", expected));
  const at::Tensor counted = targets.ne(options.ignore_index);
  const at::Tensor wrong = counted & (targets.lt(0) | targets.ge(vocab_size));
  if (wrong.any().item<bool>())
    CROSS_ENTROPY.refuse(group, lockstep::str("target ", targets.masked_select(wrong)[0].item<std::int64_t>(),
                                              " is not a class between 0 and ", vocab_size - 1));
}

}  // namespace

at::Tensor vocab_parallel_cross_entropy(const at::Tensor& logits, const at::Tensor& targets,
                                        const ProcessGroup& group,
                                        const VocabParallelCrossEntropyOptions& options) {
  group.require_member(CROSS_ENTROPY.name);
  const std::int64_t vocab_size =
      options.vocab_size > 0 || logits.dim() == 0 ? options.vocab_size : logits.size(-1) * group.size();
  check(logits, targets, group, options, vocab_size);
  const bool is_half = c10::isReducedFloatingType(logits.scalar_type());
  const at::Tensor rows = (is_half ? logits.to(at::kFloat) : logits).flatten(0, -2);
  const Task task{.targets = targets.flatten(),
                  .classes = vocab_range(vocab_size, group.rank(), group.size()),
                  .vocab_size = vocab_size,
                  .smoothing = options.label_smoothing,
                  .ignore_index = options.ignore_index,
                  .group = group};
  const at::Tensor losses = CrossEntropy::apply(rows, task);
  switch (options.reduction) {
    case at::Reduction::Sum: return losses.sum();
    case at::Reduction::Mean: return losses.sum() / task.targets.ne(options.ignore_index).sum();
    default: return losses.view(targets.sizes());
  }
}

}  // namespace lockstep::tensor_parallel

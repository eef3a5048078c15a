// A small training by known formulas, for tests of optimisers that share their work out: every rank has
// inputs of its own, and gradients are averaged by DDP.
//
//   SharedOutTraining training(world());
//   ZeroRedundancyOptimizer<optim::SGD> optimizer(training.parameters, optim::SGDOptions(0.1));
//   for (int i = 0; i < 5; ++i) {
//     training.backward(i);
//     optimizer.step();
//   }
#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "lockstep/parallel/ddp/distributed_data_parallel.h"
#include "lockstep/tensor/named_tensors.h"

namespace lockstep::testing {

// Of several sizes, so that ranks own unequally many.
inline std::vector<at::Tensor> known_parameters(at::ScalarType dtype = at::kDouble) {
  const std::vector<std::vector<std::int64_t>> shapes = {{4, 3}, {7}, {}, {5, 2, 3}, {1}, {9, 2}};
  std::vector<at::Tensor> all;
  for (const auto& shape : shapes) {
    const at::Tensor zeros = at::zeros(shape, at::kDouble);
    const at::Tensor counted = at::arange(zeros.numel(), at::kDouble).view(shape);
    all.push_back((counted * 0.7 + static_cast<double>(all.size())).sin().to(dtype).requires_grad_());
  }
  return all;
}

// The loss of one rank's inputs at one step.
inline at::Tensor known_loss(const std::vector<at::Tensor>& parameters, int rank, int step) {
  at::Tensor loss = at::zeros({}, at::kDouble);
  double x = 0.3 + 0.2 * rank - 0.1 * step;
  for (const at::Tensor& parameter : parameters) {
    loss = loss + (parameter.to(at::kDouble) * x).sin().sum() + parameter.to(at::kDouble).pow(2).sum() * 0.1;
    x += 0.15;
  }
  return loss;
}

inline NamedTensors numbered(const std::vector<at::Tensor>& tensors) {
  NamedTensors named;
  for (const at::Tensor& tensor : tensors) named.emplace_back("p" + std::to_string(named.size()), tensor);
  return named;
}

struct SharedOutTraining {
  explicit SharedOutTraining(const ProcessGroup& of, std::vector<at::Tensor> start = known_parameters())
      : group(of), parameters(std::move(start)), ddp(numbered(parameters), {}, {.process_group = of}) {}

  void backward(int step) {
    ddp.zero_grad();
    ddp.forward([&] { return known_loss(parameters, group.rank(), step); }).backward();
  }

  ProcessGroup group;
  std::vector<at::Tensor> parameters;
  DistributedDataParallel<void> ddp;
};

// One step of a process that has the inputs of all ranks.
inline void backward_of_all(const std::vector<at::Tensor>& parameters, int ranks, int step) {
  for (const at::Tensor& parameter : parameters) parameter.mutable_grad() = at::Tensor();
  at::Tensor loss = at::zeros({}, at::kDouble);
  for (int rank = 0; rank < ranks; ++rank) loss = loss + known_loss(parameters, rank, step);
  (loss / ranks).backward();
}

}  // namespace lockstep::testing

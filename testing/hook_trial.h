// A model whose gradients are what a test likes, for tests of communication hooks: d/dw sum(w * g) = g.
//
//   HookTrial trial(group, at::kFloat, {{40, 30}, {17}});
//   trial.ddp.register_comm_hook("int8");
//   const std::vector<at::Tensor> results = trial.step(trial.gradients(rank, /*step=*/0));
//   trial.mean(0);  // what an exact average gives, in float64
#pragma once

#include <ATen/ATen.h>

#include <utility>
#include <vector>

#include "lockstep/parallel/ddp/distributed_data_parallel.h"

namespace lockstep {

struct HookTrial {
  HookTrial(ProcessGroup of, at::ScalarType dtype, std::vector<std::vector<std::int64_t>> shapes,
            double bucket_cap_mb = 25)
      : group(std::move(of)),
        type(dtype),
        sizes(std::move(shapes)),
        ddp(make_parameters(), {}, {.process_group = group, .bucket_cap_mb = bucket_cap_mb}) {}

  NamedTensors make_parameters() {
    NamedTensors named;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      weights.push_back(at::zeros(sizes[i], type).requires_grad_(true));
      named.emplace_back("w" + std::to_string(i), weights.back());
    }
    return named;
  }

  // Of any rank, so that each rank can compute what all contribute.
  std::vector<at::Tensor> gradients(int rank, int step) const {
    std::vector<at::Tensor> made;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const auto seed = static_cast<std::uint64_t>(1 + rank * 1000 + step * 10) * 100 + i;
      made.push_back(at::randn(sizes[i], at::detail::createCPUGenerator(seed), at::kDouble).to(type));
    }
    return made;
  }

  // One backward with these gradients; what .grad holds after it.
  std::vector<at::Tensor> step(const std::vector<at::Tensor>& gradients) {
    for (at::Tensor& weight : weights) weight.mutable_grad().reset();
    const at::Tensor loss = ddp.forward([&] {
      at::Tensor sum = at::zeros({}, type);
      for (std::size_t i = 0; i < weights.size(); ++i) sum = sum + (weights[i] * gradients[i]).sum();
      return sum;
    });
    (loss.is_complex() ? at::real(loss) : loss).backward();
    std::vector<at::Tensor> results;
    for (const at::Tensor& weight : weights) results.push_back(weight.grad().clone());
    return results;
  }

  std::vector<at::Tensor> mean(int step) const {
    std::vector<at::Tensor> sums;
    for (int rank = 0; rank < group.size(); ++rank) {
      const auto each = gradients(rank, step);
      for (std::size_t i = 0; i < each.size(); ++i) {
        const at::Tensor exact = each[i].to(at::kDouble);
        if (rank == 0) {
          sums.push_back(exact.clone());
        } else {
          sums[i] += exact;
        }
      }
    }
    for (at::Tensor& sum : sums) sum /= group.size();
    return sums;
  }

  ProcessGroup group;
  at::ScalarType type;
  std::vector<std::vector<std::int64_t>> sizes;
  std::vector<at::Tensor> weights;
  DistributedDataParallel<void> ddp;
};

// All elements of all tensors, in float64.
inline at::Tensor joined(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> flat;
  for (const at::Tensor& tensor : tensors) flat.push_back(tensor.detach().to(at::kDouble).reshape({-1}));
  return at::cat(flat);
}

inline double largest(const at::Tensor& tensor) { return tensor.abs().max().item<double>(); }

}  // namespace lockstep

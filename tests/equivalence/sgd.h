// What cases of several files train with.
#pragma once

#include <torch/optim/sgd.h>

#include <vector>

namespace equivalence {

constexpr double SMALL = 0.0005;  // MiB: several buckets for a model of a few hundred numbers

inline torch::optim::SGD sgd(const std::vector<at::Tensor>& parameters) {
  return torch::optim::SGD(parameters, torch::optim::SGDOptions(0.05).momentum(0.9));
}

}  // namespace equivalence

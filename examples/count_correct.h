// What an image classifier gets right.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "lockstep/data/dataset.h"

// Correct answers on this rank's share of the test set. The set is cut into the same batches for any number
// of ranks, and each rank takes every ranks-th: there is no padding and no image is ever computed in another
// batch, so the sum over ranks does not depend on their number. Forward without gradients never communicates.
template <typename Net, lockstep::Dataset Images>
std::int64_t count_correct(Net& net, const Images& test, int rank, int ranks) {
  constexpr std::int64_t BATCH = 250;
  const at::NoGradGuard no_grad;
  net.eval();
  const at::Device device = net.parameters().front().device();
  std::int64_t correct = 0;
  for (std::int64_t first = BATCH * rank; first < test.size(); first += BATCH * ranks) {
    std::vector<std::int64_t> indices(static_cast<std::size_t>(std::min(BATCH, test.size() - first)));
    std::iota(indices.begin(), indices.end(), first);
    const auto batch = test.get_batch(indices);
    const at::Tensor answers = net.forward(batch.data.to(device)).argmax(1);
    correct += answers.eq(batch.target.to(device)).sum().template item<std::int64_t>();
  }
  net.train();
  return correct;
}

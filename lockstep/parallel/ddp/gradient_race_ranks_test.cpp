// The race test of Apex's DDP: every gradient of iteration i is known exactly, and each iteration follows the
// one before at once. An average that starts too early, or ends too late, shows the numbers of another
// iteration.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/parallel/ddp/distributed_data_parallel.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

constexpr int ITERATIONS = 40;
constexpr int WIDTH = 256;
constexpr int DEPTH = 6;

void expect_exact_gradients(DistributedDataParallelOptions options, int rank, int size) {
  torch::set_num_threads(1);
  NamedTensors named;
  std::vector<torch::Tensor> w;
  for (int i = 0; i < DEPTH; ++i) {  // 1, 2, 1, 2, ...
    w.push_back(torch::full({WIDTH, WIDTH}, 1.0 + i % 2, torch::requires_grad()));
    named.emplace_back("w" + std::to_string(i), w.back());
  }
  options.bucket_cap_mb = 1e-6;
  DistributedDataParallel ddp(named, {}, options);
  for (int i = 0; i < ITERATIONS; ++i) {
    for (const auto& each : w) {
      if (i % 4 == 3) {
        each.mutable_grad().zero_();
      } else {
        each.mutable_grad().reset();
      }
    }
    const auto loss = ddp.forward([&] {
      torch::Tensor y = torch::full({}, 1.0 * (i + rank));
      for (const auto& each : w) y = y * each;
      return y.sum();
    });
    loss.backward();
    for (int k = 0; k < DEPTH; ++k) {  // 2^3 / w_k times the mean of i + rank
      const double expected = (8.0 / (1 + k % 2)) * (i + (size - 1) / 2.0);
      ASSERT_TRUE(torch::equal(w[k].grad(), torch::full({WIDTH, WIDTH}, expected)))
          << k << " in iteration " << i;
    }
  }
}

RANKS_TEST(GradientRace, ShowsNoNumbersOfAnotherIteration, Ranks(1, 2, 3, 4), EveryBackend()) {
  expect_exact_gradients({.process_group = world()}, rank(), size());
}

RANKS_TEST(GradientRace, NorWithUnusedParametersOrAStaticGraph, Ranks(2, 3)) {
  expect_exact_gradients({.process_group = world(), .find_unused_parameters = true}, rank(), size());
  expect_exact_gradients({.process_group = world(), .static_graph = true}, rank(), size());
}

}  // namespace
}  // namespace lockstep

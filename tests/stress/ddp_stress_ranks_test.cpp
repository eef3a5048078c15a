// Ten thousand steps of a tiny model: exact gradients in each, and nothing grows.
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <fstream>

#include "lockstep/parallel/ddp/distributed_data_parallel.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

constexpr int STEPS = 10'000;
constexpr int SETTLED = 1'000;
constexpr std::int64_t MAY_GROW = 8 << 20;  // bytes: less than a kilobyte per step

std::int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t total = 0;
  std::int64_t resident = 0;
  statm >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

double slope(int step, int rank, int parameter) { return (7 * step + 3 * rank + parameter) % 11; }

// The sum is exact, and it is divided once.
double mean_slope(int step, int size, int parameter) {
  double sum = 0;
  for (int r = 0; r < size; ++r) sum += slope(step, r, parameter);
  return sum / size;
}

RANKS_TEST(DdpStress, TenThousandStepsAreExactAndLeaveNothing, Ranks(2, 3)) {
  torch::set_num_threads(1);
  std::vector<torch::Tensor> w;
  NamedTensors named;
  for (int i = 0; i < 4; ++i) {
    w.push_back(torch::zeros({5}, torch::TensorOptions(at::kDouble).requires_grad(true)));
    named.emplace_back("w" + std::to_string(i), w.back());
  }
  DistributedDataParallel ddp(named, {}, {.process_group = world(), .bucket_cap_mb = 1e-6});
  std::int64_t settled = 0;
  for (int step = 0; step < STEPS; ++step) {
    if (step == SETTLED) settled = resident_bytes();
    for (const auto& each : w) each.mutable_grad().reset();
    const auto loss = ddp.forward([&] {
      torch::Tensor sum = torch::zeros({}, at::kDouble);
      for (int i = 0; i < 4; ++i)
        sum = sum + (w[(i + step + rank()) % 4] * slope(step, rank(), (i + step + rank()) % 4)).sum();
      return sum;
    });
    loss.backward();
    for (int i = 0; i < 4; ++i) {
      const double* grad = w[i].grad().const_data_ptr<double>();
      ASSERT_EQ(grad[0], mean_slope(step, size(), i)) << "w" << i << " in step " << step;
      ASSERT_EQ(grad[4], mean_slope(step, size(), i)) << "w" << i << " in step " << step;
    }
  }
  EXPECT_EQ(ddp.stats().reductions, static_cast<std::uint64_t>(STEPS));
  EXPECT_LT(resident_bytes() - settled, MAY_GROW);
}

}  // namespace
}  // namespace lockstep

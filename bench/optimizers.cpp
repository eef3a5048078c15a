// Steps of an optimiser on 25 million float32 parameters, by one thread: 25 weights of 1000x1000 with a bias
// of 1000 each.
//
//   build/bench/optimizers lockstep 20         # Lockstep's optimisers
//   build/bench/optimizers libtorch 20         # libtorch's C++ optimisers, with libtorch's allocator
//   build/bench/optimizers cached 20           # the same with Lockstep's caching allocator, which keeps
//                                              # their temporaries
//
// Prints one JSON object per optimiser: the median over the steps, after two to warm up, of the time and of
// this process's processor time, in ms. bench/peers/optimizers.py is the same in Python.
//
// Expected of memory alone: a step reads and writes SGD 3, with momentum 5, Adam and AdamW 7 numbers per
// parameter, LAMB 10 in two passes; libtorch's operations one after the other 3, 8 and 21 to 25.
#include <ATen/Parallel.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/optim/adam.h"
#include "lockstep/optim/lamb.h"
#include "lockstep/optim/lars.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/tensor/caching_allocator.h"

namespace {

using Parameters = std::vector<at::Tensor>;

Parameters make_parameters() {
  torch::manual_seed(1);
  Parameters parameters;
  for (int i = 0; i < 25; ++i) {
    for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{1000, 1000}, {1000}}) {
      parameters.push_back(torch::randn(shape));
      parameters.back().mutable_grad() = torch::randn(shape);
    }
  }
  return parameters;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

template <typename Make> void measure(const char* name, int steps, const Make& make) {
  Parameters parameters = make_parameters();
  auto optimizer = make(parameters);
  std::vector<double> wall, cpu;
  for (int s = -2; s < steps; ++s) {
    const auto start = std::chrono::steady_clock::now();
    const std::clock_t cpu_start = std::clock();
    optimizer.step();
    if (s < 0) continue;
    cpu.push_back(1e3 * static_cast<double>(std::clock() - cpu_start) / CLOCKS_PER_SEC);
    wall.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  std::printf("{\"optimizer\": \"%s\", \"ms\": %.3f, \"cpu_ms\": %.3f}\n", name, median(wall), median(cpu));
}

void measure_lockstep(int steps) {
  using namespace lockstep::optim;  // NOLINT(google-build-using-namespace)
  measure("SGD", steps, [](const Parameters& p) { return SGD(p, SGDOptions(0.01)); });
  measure("SGD, momentum, weight decay", steps,
          [](const Parameters& p) { return SGD(p, SGDOptions(0.01).momentum(0.9).weight_decay(1e-4)); });
  measure("Adam", steps, [](const Parameters& p) { return Adam(p); });
  measure("AdamW", steps, [](const Parameters& p) { return AdamW(p); });
  measure("LARS", steps, [](const Parameters& p) { return LARS(p, LARSOptions(0.01).weight_decay(1e-4)); });
  measure("LAMB", steps, [](const Parameters& p) { return LAMB(p); });
}

void measure_libtorch(int steps) {
  namespace optim = torch::optim;
  measure("SGD", steps, [](const Parameters& p) { return optim::SGD(p, optim::SGDOptions(0.01)); });
  measure("SGD, momentum, weight decay", steps, [](const Parameters& p) {
    return optim::SGD(p, optim::SGDOptions(0.01).momentum(0.9).weight_decay(1e-4));
  });
  measure("Adam", steps, [](const Parameters& p) { return optim::Adam(p); });
  measure("AdamW", steps, [](const Parameters& p) { return optim::AdamW(p); });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 64;
  const std::string whose = argv[1];
  const int steps = std::atoi(argv[2]);
  if (steps < 1) return 64;
  at::set_num_threads(1);
  if (whose == "cached") lockstep::install_caching_allocator();
  if (whose == "lockstep") {
    measure_lockstep(steps);
  } else {
    measure_libtorch(steps);
  }
  return 0;
}

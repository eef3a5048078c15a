// As trial.cpp, with libtorch: one rank that trains a small model with DistributedDataParallel.
//
//   ddp_trial STAMPS STEPS        or: ddp_trial --copies CONNECTION (copies.h)
//
// Fail points ddp.construct and ddp.mid_reduction of the library; trial.between_steps, trial.saving,
// trial.last_barrier here.
#include <ATen/ATen.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "lockstep/base/fail_point.h"
#include "lockstep/parallel/ddp/distributed_data_parallel.h"
#include "lockstep/tensor/collectives.h"
#include "tests/faults/copies.h"
#include "tests/faults/trial.h"

namespace {

using namespace lockstep;  // NOLINT(google-build-using-namespace)

constexpr int LAYERS = 6;
constexpr int WIDTH = 100;

NamedTensors make_weights() {
  NamedTensors weights;
  for (int layer = 0; layer < LAYERS; ++layer) {
    const double value = 0.01 * (layer + 1 + get_rank());
    weights.emplace_back("layer" + std::to_string(layer),
                         at::full({WIDTH, WIDTH}, value).set_requires_grad(true));
  }
  return weights;
}

void train(DistributedDataParallel<void>& ddp, const NamedTensors& weights, int step) {
  const at::Tensor loss = ddp.forward([&] {
    at::Tensor x = at::full({8, WIDTH}, 0.1 * (step + get_rank()));
    for (const auto& [name, weight] : weights) x = at::tanh(x.mm(weight));
    return x.mean();
  });
  loss.backward();
  const at::NoGradGuard no_grad;
  for (const auto& [name, weight] : weights) {
    weight.sub_(weight.grad(), 0.1);
    weight.mutable_grad() = at::Tensor();
  }
}

void save(const NamedTensors& weights) {
  if (get_rank() == 0) {
    std::ofstream file("model", std::ios::binary);
    for (const auto& [name, weight] : weights) {
      file.write(static_cast<const char*>(weight.data_ptr()), static_cast<std::streamsize>(weight.nbytes()));
      if (name == "layer3") fail_point("trial.saving");
    }
  } else {
    fail_point("trial.saving");
  }
  barrier();
}

void run(const trial::Stamp& stamp, int steps) {
  stamp.phase("init");
  init_process_group();
  stamp.phase("construction");
  const NamedTensors weights = make_weights();
  stamp.alive();
  DistributedDataParallel<void> ddp(weights, {}, {.bucket_cap_mb = 0.05});  // a bucket per layer or so
  stamp.phase("steps");
  for (int step = 0; step < steps; ++step) {
    train(ddp, weights, step);
    stamp.alive();
    fail_point("trial.between_steps");
  }
  stamp.phase("saving");
  save(weights);
  stamp.phase("teardown");
  fail_point("trial.last_barrier");
  barrier();
  destroy_process_group();
  std::printf("done %a\n", weights.front().second.sum().item<double>());
}

}  // namespace

int main(int argc, char** argv) {
  const bool is_copy = trial::serve_copies(&argc, &argv);
  const trial::Stamp stamp(argv[1]);
  const int code = trial::run_and_report([&] { run(stamp, std::stoi(argv[2])); });
  std::fflush(nullptr);
  if (is_copy) std::_Exit(code);  // libtorch's static objects take longer to destroy than the trial took
  return code;
}

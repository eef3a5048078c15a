// Training steps of 256 samples, over virtual ranks and over plain processes: what the same bits on any
// number of processes cost.
//
//   lockstep run -n 3 --virtual-ranks 4 build/bench/virtual_ranks cnn 50      # 4 times 64 samples on 3
//   processes lockstep run -n 3 build/bench/virtual_ranks cnn 50                        # 86, 85 and 85
//   samples
//
// One thread a process, SGD with momentum, on data made once; the models of bench/train_step.cpp. Prints one
// JSON object per process, over STEPS steps after a fifth as many to warm up: samples per second of the whole
// job, processor time per step, the MiB that this process contributed to averages, and its resident memory.
#include <ATen/Parallel.h>
#include <torch/nn/functional/loss.h>
#include <torch/utils.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "bench/models.h"
#include "examples/simple_cnn.h"
#include "lockstep/job/virtual_ranks.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/parallel/ddp/distributed_data_parallel.h"
#include "lockstep/parallel/virtual_ranks/virtual_ranks.h"
#include "lockstep/tensor/collectives.h"

namespace {

constexpr int SAMPLES = 256;  // of a step, in all processes together

double resident_mib() {
  std::ifstream file("/proc/self/smaps_rollup");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("Rss:")) return std::atof(line.c_str() + 4) / 1024;
  }
  return -1;
}

double cpu_ms() { return 1e3 * static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

template <typename Model> void measure(Model model, std::vector<std::int64_t> shape, int steps) {
  lockstep::DistributedDataParallel ddp(model);
  lockstep::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(1e-3).momentum(0.9));
  const int parts = lockstep::virtual_world_size();
  const int part = lockstep::local_virtual_ranks().front();
  shape.insert(shape.begin(), SAMPLES / parts + (part < SAMPLES % parts ? 1 : 0));
  const at::Tensor data = torch::randn(shape);
  const at::Tensor target = torch::randint(10, {shape[0]}, torch::kLong);
  const int warm_up = (steps + 4) / 5;
  std::chrono::steady_clock::time_point start;
  double cpu = 0;
  std::uint64_t sent = 0;
  for (int i = 0; i < warm_up + steps; ++i) {
    if (i == warm_up) {
      lockstep::barrier();
      start = std::chrono::steady_clock::now();
      cpu = cpu_ms();
      sent = ddp.stats().bytes_sent;
    }
    optimizer.zero_grad();
    for ([[maybe_unused]] const int v : lockstep::virtual_ranks())
      torch::nn::functional::cross_entropy(ddp.forward(data), target).backward();
    optimizer.step();
  }
  cpu = (cpu_ms() - cpu) / steps;
  lockstep::barrier();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::printf(
      "{\"samples_per_second\": %.2f, \"cpu_ms_per_step\": %.3f, \"mib_sent\": %.3f, \"rss_mib\": %.1f}\n",
      SAMPLES * static_cast<double>(steps) / seconds.count(), cpu,
      static_cast<double>(ddp.stats().bytes_sent - sent) / (1 << 20) / steps, resident_mib());
}

}  // namespace

int main(int argc, char** argv) {
  const std::string model = argc == 3 ? argv[1] : "";
  const int steps = argc == 3 ? std::atoi(argv[2]) : 0;
  if (steps < 1 || (model != "cnn" && model != "mlp")) {
    std::fprintf(stderr, "usage: virtual_ranks cnn|mlp STEPS\n");
    return 64;
  }
  at::set_num_threads(1);
  torch::manual_seed(1);
  lockstep::init_process_group();
  if (model == "cnn") {
    measure(SimpleCNN(), {1, 28, 28}, steps);
  } else {
    measure(MLP(), {2048}, steps);
  }
  return 0;
}

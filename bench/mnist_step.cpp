// Training steps of the MNIST CNN, one thread a process, 64 images a process, Adam, on data made once.
//
//   lockstep run -n 2 build/bench/mnist_step ddp STEPS       # gradients averaged
//   lockstep run -n 2 build/bench/mnist_step alone STEPS     # processes that never talk
//
// Prints one JSON object per process: images per second and processor time per step over STEPS steps, after a fifth as many
// to warm up. bench/peers/mnist_step.py is the same in Python.
//
// Expected before the first measurement: a step takes 30 to 60 ms, and its 1.7 MB of gradients 60 to 100 us in shared memory,
// so DDP should keep 97 % of what processes reach that never talk, unless waiting for the slower rank costs more.
#include <ATen/Parallel.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/adam.h>
#include <torch/utils.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include "examples/simple_cnn.h"
#include "lockstep/parallel/ddp/distributed_data_parallel.h"
#include "lockstep/tensor/collectives.h"

namespace {

constexpr int BATCH = 64;
constexpr int BATCHES = 16;

struct Speed {
  double images_per_second;
  double cpu_ms_per_step;
};

double processor_ms() { return 1e3 * static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

Speed measure(int steps, SimpleCNN& net, const std::function<torch::Tensor(torch::Tensor)>& forward,
              const std::function<void()>& synchronise) {
  torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(1e-3));
  std::vector<torch::Tensor> data;
  std::vector<torch::Tensor> target;
  for (int i = 0; i < BATCHES; ++i) {
    data.push_back(torch::randn({BATCH, 1, 28, 28}));
    target.push_back(torch::randint(10, {BATCH}, torch::kLong));
  }
  const int warm_up = steps / 5;
  auto start = std::chrono::steady_clock::now();
  double cpu_start = 0;
  for (int step = 0; step < warm_up + steps; ++step) {
    if (step == warm_up) {
      synchronise();
      start = std::chrono::steady_clock::now();
      cpu_start = processor_ms();
    }
    optimizer.zero_grad();
    torch::nn::functional::cross_entropy(forward(data[step % BATCHES]), target[step % BATCHES]).backward();
    optimizer.step();
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return {BATCH * steps / seconds, (processor_ms() - cpu_start) / steps};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: mnist_step ddp|alone STEPS\n");
    return 64;
  }
  at::set_num_threads(1);
  torch::manual_seed(1);
  const int steps = std::atoi(argv[2]);
  SimpleCNN net;
  Speed speed{};
  if (std::string(argv[1]) == "ddp") {
    lockstep::init_process_group();
    lockstep::DistributedDataParallel ddp(net);
    speed = measure(
        steps, net, [&](const torch::Tensor& x) { return ddp.forward(x); }, [] { lockstep::barrier(); });
  } else {
    speed = measure(
        steps, net, [&](const torch::Tensor& x) { return net->forward(x); }, [] {});
  }
  std::printf("{\"images_per_second\": %.2f, \"cpu_ms_per_step\": %.3f}\n", speed.images_per_second,
              speed.cpu_ms_per_step);
  return 0;
}

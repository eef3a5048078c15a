// A model whose layers lie on several ranks: with two ranks, layers 1-3 on rank 0 and 4-6 on rank 1. A batch
// goes through them in micro-batches, so that all ranks compute at once. The losses are those of one process.
//
//   build/lockstep run -n 2 build/examples/pipeline
//   [0] rank 0 has 3 of 6 layers
//   [1] rank 1 has 3 of 6 layers
//   [1] step 60: loss ...
//
// The cut may be measured instead: dist::balance_by_time(ranks, layers, micro_batch).
#include <ATen/Parallel.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/randn.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <cstdio>
#include <stdexcept>

#include "examples/job.h"
#include "lockstep/job/job.h"
#include "lockstep/optim/adam.h"
#include "lockstep/parallel/pipeline/balance.h"
#include "lockstep/parallel/pipeline/pipeline.h"

namespace dist = lockstep;
namespace nn = torch::nn;

constexpr int STEPS = 60;
constexpr std::int64_t BATCH = 64;

// One of six layers: a matrix and its activation.
struct LayerImpl : nn::Module {
  LayerImpl(std::int64_t in, std::int64_t out) { linear = register_module("linear", nn::Linear(in, out)); }
  at::Tensor forward(const at::Tensor& x) { return linear(x).tanh(); }
  nn::Linear linear{nullptr};
};
TORCH_MODULE(Layer);

nn::Sequential all_layers() {
  torch::manual_seed(1);  // the same on every rank
  nn::Sequential layers;
  layers->push_back(Layer(32, 128));
  for (int i = 0; i < 4; ++i) layers->push_back(Layer(128, 128));
  layers->push_back(nn::Linear(128, 10));
  return layers;
}

void train() {
  at::set_num_threads(1);
  dist::init_process_group();
  const nn::Sequential layers = all_layers();
  // {3, 3} with two ranks: the layers count alike.
  const auto balance = dist::balance_costs(std::vector<double>(layers->size(), 1), dist::get_world_size());
  nn::Sequential mine = dist::sequential_part(layers, balance, dist::get_rank());
  std::printf("rank %d has %zu of %zu layers\n", dist::get_rank(), mine->size(), layers->size());

  dist::optim::AdamW optimizer(mine->parameters(), dist::optim::AdamWOptions(3e-3));  // of this rank's layers
  const auto loss_of = [](const at::Tensor& output, const at::Tensor& target) {
    return nn::functional::cross_entropy(output, target);
  };
  dist::Pipeline pipeline({mine}, loss_of,
                          {.schedule = dist::PipelineScheduleKind::ONE_F_ONE_B, .micro_batches = 4});
  double first = 0, last = 0;
  for (int step = 1; step <= STEPS; ++step) {
    // Which of ten coordinates is the largest? Rank 0 needs the data and the last rank the targets.
    torch::manual_seed(static_cast<std::uint64_t>(step));
    const at::Tensor data = at::randn({BATCH, 32});
    const at::Tensor target = data.narrow(1, 0, 10).argmax(1);
    optimizer.zero_grad();
    last = pipeline.step(data, target).loss;  // the same number on every rank
    optimizer.step();
    if (step == 1) first = last;
  }
  if (pipeline.is_last()) std::printf("step %d: loss %.4f\n", STEPS, last);
  if (!(last < 0.7 * first)) throw std::runtime_error("the loss did not fall");
  dist::destroy_process_group();
}

int main(int argc, char** argv) { return run_job(argc, argv, train); }

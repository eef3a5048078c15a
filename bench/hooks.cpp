// What each communication hook sends, costs and loses: training steps of one model with each of them in turn.
//
//   lockstep run -n 2 build/bench/hooks mlp 20
//   lockstep run -n 4 build/bench/hooks resnet18 5
//
// One thread a process, 64 samples a process, SGD with momentum, on data made once. Rank 0 prints one JSON
// object per hook: bytes that a rank contributes per step (measured, stats().bytes_sent), as MiB and as a
// part of the gradients; milliseconds per step; the error of the first step's averaged gradient relative to
// the exact one (L2 norms, before any error feedback); and the mean loss of the last step over the ranks.
//
// Expected: on one machine memory is faster than any compression, so only bytes and errors matter here;
// powerSGD's error on random data is close to 1, because such gradients have no few directions.
#include <ATen/Parallel.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "bench/models.h"
#include "lockstep/job/job.h"
#include "lockstep/models/resnet.h"
#include "lockstep/parallel/ddp/distributed_data_parallel.h"
#include "lockstep/parallel/gradients/hooks/hook_registry.h"
#include "lockstep/parallel/gradients/hooks/power_sgd_hook.h"
#include "lockstep/tensor/collectives.h"

namespace {

constexpr int BATCH = 64;

// A null hook: none.
std::vector<std::shared_ptr<lockstep::CommHook>> hooks() {
  std::vector<std::shared_ptr<lockstep::CommHook>> all = {nullptr};
  for (const char* name : {"allreduce", "fp16_compress", "bf16_compress", "int8", "topk"}) {
    all.push_back(lockstep::make_comm_hook(name));
  }
  for (const int rank : {1, 4}) {
    all.push_back(std::make_shared<lockstep::PowerSgdHook>(
        lockstep::PowerSgdOptions{.matrix_approximation_rank = rank, .start_powerSGD_iter = 0}));
  }
  all.push_back(lockstep::make_comm_hook("noop"));
  return all;
}

template <typename Model> torch::Tensor gradients(const Model& model) {
  std::vector<torch::Tensor> flat;
  for (const auto& parameter : model->parameters()) flat.push_back(parameter.grad().flatten());
  return torch::cat(flat);
}

// `exact`: the first averaged gradient, made by the first hook.
template <typename Model>
void measure(Model model, c10::IntArrayRef sample, const std::shared_ptr<lockstep::CommHook>& hook, int steps,
             torch::Tensor& exact) {
  lockstep::DistributedDataParallel ddp(model);
  if (hook) ddp.register_comm_hook(hook);
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(1e-3).momentum(0.9));
  torch::manual_seed(100 + lockstep::get_rank());
  auto shape = sample.vec();
  shape.insert(shape.begin(), BATCH);
  const torch::Tensor data = torch::randn(shape);
  const torch::Tensor target = torch::randint(10, {BATCH}, torch::kLong);
  const auto step = [&] {
    optimizer.zero_grad();
    const torch::Tensor loss = torch::nn::functional::cross_entropy(ddp->forward(data), target);
    loss.backward();
    return loss.detach();
  };
  step();
  const torch::Tensor first = gradients(model);
  if (!exact.defined()) exact = first.clone();
  const double error = ((first - exact).norm() / exact.norm()).template item<double>();
  optimizer.step();
  lockstep::barrier();
  const auto before = ddp.stats();
  const auto start = std::chrono::steady_clock::now();
  torch::Tensor loss;
  for (int i = 0; i < steps; ++i) {
    loss = step();
    optimizer.step();
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  lockstep::all_reduce(loss, lockstep::ReduceOp::AVG);
  const auto after = ddp.stats();
  if (lockstep::get_rank() != 0) return;
  const double bytes = static_cast<double>(after.bytes_sent - before.bytes_sent) / steps;
  std::printf(
      "{\"hook\": \"%s\", \"mib_per_step\": %.3f, \"part_of_gradients\": %.5f, \"ms_per_step\": %.1f, "
      "\"first_error\": %.2e, \"loss\": %.5f}\n",
      hook ? hook->describe().c_str() : "", bytes / (1 << 20),
      bytes / static_cast<double>(after.bucket_bytes), 1e3 * seconds / steps, error, loss.item<double>());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string model = argc == 3 ? argv[1] : "";
  const int steps = argc == 3 ? std::atoi(argv[2]) : 0;
  if ((model != "mlp" && model != "resnet18") || steps < 1) {
    std::fprintf(stderr, "usage: hooks mlp|resnet18 STEPS\n");
    return 64;
  }
  at::set_num_threads(1);
  lockstep::init_process_group();
  torch::Tensor exact;
  for (const auto& hook : hooks()) {
    torch::manual_seed(1);
    if (model == "mlp") {
      measure(MLP(), {2048}, hook, steps, exact);
    } else {
      measure(lockstep::models::resnet18({.num_classes = 10}), {3, 32, 32}, hook, steps, exact);
    }
  }
  return 0;
}

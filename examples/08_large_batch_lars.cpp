// A batch 64 times as large, in as many epochs: SGD with the linear scaling rule no longer learns what LARS
// learns. Gradients of micro-batches of 64 are accumulated, whatever the number of ranks; the rate warms up
// and follows a cosine.
//
//   build/lockstep run -n 2 build/examples/large_batch_lars
//   [0] batch   64, SGD:  accuracy 85.2 % (1536 steps)
//   [0] batch 4096, SGD:  accuracy 15.8 % (24 steps)
//   [0] batch 4096, LARS: accuracy 57.8 % (24 steps)
#include <ATen/Parallel.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/randn.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <algorithm>
#include <cstdio>

#include "examples/checkpoints.h"
#include "lockstep/base/str.h"
#include "lockstep/data/data_loader.h"
#include "lockstep/data/distributed_sampler.h"
#include "lockstep/job/job.h"
#include "lockstep/optim/gradient_accumulation.h"
#include "lockstep/optim/lars.h"
#include "lockstep/optim/lr_scheduler.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/parallel/ddp/distributed_data_parallel.h"

namespace dist = lockstep;
namespace nn = torch::nn;

constexpr int EPOCHS = 12;
constexpr std::int64_t MICRO_BATCH = 64;  // what one process computes at a time
constexpr double BASE_LR = 0.05;          // good for SGD with a batch of BASE_BATCH
constexpr std::int64_t BASE_BATCH = 64;
constexpr std::int64_t LARGE_BATCH = 4096;

// Points in 32 dimensions; which of ten classes one belongs to, a random network says.
struct Points {
  Points() {
    torch::manual_seed(0);
    data = at::randn({8192, 32});
    const at::Tensor hidden = tanh(data.mm(at::randn({32, 16})) / 3);
    target = hidden.mm(at::randn({16, 10})).argmax(1);
  }
  std::int64_t size() const { return data.size(0); }
  dist::Batch get_batch(std::span<const std::int64_t> indices) const {
    const at::Tensor rows = at::tensor(indices, at::kLong);
    return {data.index_select(0, rows), target.index_select(0, rows)};
  }
  at::Tensor data, target;
};

nn::Sequential make_net() {
  torch::manual_seed(1);
  return nn::Sequential(nn::Linear(32, 64), nn::ReLU(), nn::Linear(64, 64), nn::ReLU(), nn::Linear(64, 64),
                        nn::ReLU(), nn::Linear(64, 10));
}

// Trains with batches of about `batch`, all ranks and micro-batches together, and answers the accuracy in
// percent. Its checkpoints lie in a folder of their own.
template <typename Make>
double train(const char* name, const Points& points, std::int64_t batch, const Make& make,
             CheckpointOptions options) {
  nn::Sequential net = make_net();
  dist::DistributedDataParallel ddp(net);
  dist::DistributedSampler sampler(points.size(), {.drop_last = true});
  const std::int64_t share = batch / dist::get_world_size();  // of one rank
  const std::int64_t micro_batch = std::clamp<std::int64_t>(share, 1, MICRO_BATCH);
  auto loader =
      dist::make_data_loader(points, sampler, {.batch_size = micro_batch, .workers = 0, .drop_last = true});
  const auto micro_batches = static_cast<std::int64_t>(loader.size());
  const std::int64_t accumulate = std::max<std::int64_t>(1, share / micro_batch);
  const std::int64_t steps = EPOCHS * ((micro_batches + accumulate - 1) / accumulate);

  auto optimizer = make(ddp.parameters(), dist::optim::linear_scaling(BASE_LR, BASE_BATCH, batch));
  dist::optim::LRScheduler scheduler(optimizer, dist::optim::schedule::warmup_cosine(steps / 10, steps));
  dist::GradientAccumulation accumulation(ddp, {.steps = accumulate, .micro_batches = micro_batches});
  int epoch = 0;
  if (!options.dir.empty()) options.dir += dist::str("/", name, "-", batch);
  Checkpoints checkpoints(options);
  checkpoints.state.add("model", net).add("optimizer", optimizer).add("scheduler", scheduler);
  checkpoints.state.add("sampler", sampler).add("accumulation", accumulation).add_value("epoch", epoch);
  checkpoints.resume();
  for (; epoch < EPOCHS; ++epoch) {
    sampler.set_epoch(epoch);
    for (auto& [data, target] : loader) {
      auto micro = accumulation.next();
      micro.backward(nn::functional::cross_entropy(ddp->forward(data), target));
      if (!micro.is_last()) continue;
      optimizer.step();
      optimizer.zero_grad();
      scheduler.step();
      checkpoints.after_step();
    }
  }
  const at::NoGradGuard no_grad;
  const double accuracy =
      100 * (net->forward(points.data).argmax(1) == points.target).to(at::kDouble).mean().item<double>();
  if (dist::get_rank() == 0)
    std::printf("batch %4ld, %-5s accuracy %.1f %% (%ld steps)\n", static_cast<long>(batch),
                dist::str(name, ":").c_str(), accuracy, static_cast<long>(steps));
  return accuracy;
}

void run(const CheckpointOptions& options) {
  at::set_num_threads(1);  // the net is small
  dist::init_process_group();
  const Points points;
  const auto sgd = [](const std::vector<at::Tensor>& parameters, double lr) {
    return dist::optim::SGD(parameters, dist::optim::SGDOptions(lr).momentum(0.9).weight_decay(1e-4));
  };
  const auto lars = [](const std::vector<at::Tensor>& parameters, double lr) {
    return dist::optim::LARS(parameters,
                             dist::optim::LARSOptions(lr).weight_decay(1e-4).trust_coefficient(0.01));
  };
  train("SGD", points, BASE_BATCH, sgd, options);
  const double of_sgd = train("SGD", points, LARGE_BATCH, sgd, options);
  const double of_lars = train("LARS", points, LARGE_BATCH, lars, options);
  if (of_lars < of_sgd + 10) throw std::runtime_error("LARS should have been better by far");
  dist::destroy_process_group();
}

int main(int argc, char** argv) { return run_training(argc, argv, run); }

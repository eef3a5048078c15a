// Each rank steps its part of one model (ZeRO): the ranks share one copy of the parameters, and each keeps
// the optimiser state of its part alone. The losses are those of DistributedDataParallel, bit for bit.
//
//   build/lockstep run -n 2 build/examples/zero
//   [0] 2 ranks share 2.12 M parameters: 4.2 MB of them a rank, 8.5 MB of gradients, 8.5 MB of AdamW's state
//   [0] step 10: loss 1.3579, norm of the gradients 2.414
//   [0] step 40: loss 0.4648, norm of the gradients 1.445
#include <ATen/Parallel.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/randn.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <cstdio>
#include <stdexcept>

#include "examples/checkpoints.h"
#include "lockstep/job/job.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/lr_scheduler.h"
#include "lockstep/parallel/zero/sharded_data_parallel.h"
#include "lockstep/train/mean.h"

namespace dist = lockstep;
namespace nn = torch::nn;

constexpr int STEPS = 40;
constexpr std::int64_t BATCH = 64;  // of a rank

nn::Sequential make_net() {
  torch::manual_seed(1);
  return nn::Sequential(nn::Linear(32, 1024), nn::ReLU(), nn::Linear(1024, 1024), nn::ReLU(),
                        nn::Linear(1024, 1000), nn::ReLU(), nn::Linear(1000, 10));
}

// Which of ten classes a point belongs to, its largest coordinate says.
struct Batch {
  explicit Batch(int step) {
    torch::manual_seed(static_cast<std::uint64_t>(1000 * step + dist::get_rank()));
    data = at::randn({BATCH, 32});
    target = data.narrow(1, 0, 10).argmax(1);
  }
  at::Tensor data, target;
};

void print_memory(const dist::ShardedDataParallelBase& model, std::int64_t parameters) {
  const dist::ShardedMemory memory = model.memory();
  const double state = 8.0 * static_cast<double>(parameters) / dist::get_world_size();
  if (dist::get_rank() == 0)
    std::printf(
        "%d ranks share %.2f M parameters: %.1f MB of them a rank, %.1f MB of gradients, %.1f MB of AdamW's "
        "state\n",
        dist::get_world_size(), static_cast<double>(parameters) / 1e6, memory.parameters / 1e6,
        memory.gradients / 1e6, state / 1e6);
}

void run(const CheckpointOptions& options) {
  at::set_num_threads(1);
  dist::init_process_group();
  nn::Sequential net = make_net();
  std::int64_t parameters = 0;
  for (const at::Tensor& parameter : net->parameters()) parameters += parameter.numel();

  dist::ShardedDataParallel model(net);
  auto optimizer = model.optimizer<dist::optim::AdamW>(dist::optim::AdamWOptions(1e-3));
  dist::optim::StepLR scheduler(optimizer, /*step_size=*/20);
  print_memory(model, parameters);

  int step = 0;
  double first = 0, last = 0;
  Checkpoints checkpoints(options);
  checkpoints.state.add("model", model).add("optimizer", optimizer).add("scheduler", scheduler);
  checkpoints.state.add_value("number", step).add_value("first", first);
  checkpoints.resume();
  while (step < STEPS) {
    const Batch batch(step);
    const at::Tensor loss = nn::functional::cross_entropy(model->forward(batch.data), batch.target);
    loss.backward();
    const double norm = model.clip_grad_norm_(1.0);
    optimizer.step();
    scheduler.step();
    ++step;
    dist::Mean mean;
    mean.add(loss.item<double>());
    last = mean.across_ranks();
    if (step == 1) first = last;
    if (dist::get_rank() == 0 && step % 10 == 0)
      std::printf("step %d: loss %.4f, norm of the gradients %.3f\n", step, last, norm);
    checkpoints.after_step();
  }
  if (!(last < 0.7 * first)) throw std::runtime_error("the loss did not fall");
  dist::destroy_process_group();
}

int main(int argc, char** argv) { return run_training(argc, argv, run); }

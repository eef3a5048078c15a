// Mixed precision, gradient accumulation and DistributedDataParallel together, with the last, incomplete
// group of micro-batches handled.
//
//   build/lockstep run -n 2 build/examples/amp_accumulate_ddp
//   build/examples/amp_accumulate_ddp --spawn 2                   # the same without the launcher
//
// All but the last backward of a group run under no_sync(): nothing is sent for them.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adam.h>
#include <torch/utils.h>

#include <cstdio>
#include <optional>

#include "examples/checkpoints.h"
#include "lockstep/lockstep.h"

namespace dist = lockstep;
namespace nn = torch::nn;

namespace {

constexpr int FEATURES = 20, CLASSES = 5, BATCH_SIZE = 32, ACCUMULATION_STEPS = 4, EPOCHS = 6;

// Points around five centres, the same on every rank.
struct Clouds {
  Clouds() {
    const auto random = at::detail::createCPUGenerator(7);
    target = at::randint(CLASSES, {2000}, random, at::kLong);
    data =
        at::randn({CLASSES, FEATURES}, random).index_select(0, target) + at::randn({2000, FEATURES}, random);
  }
  std::int64_t size() const { return data.size(0); }
  dist::Batch get_batch(std::span<const std::int64_t> indices) const {
    const auto chosen = torch::tensor(std::vector<std::int64_t>(indices.begin(), indices.end()));
    return {data.index_select(0, chosen), target.index_select(0, chosen)};
  }
  at::Tensor data, target;
};

void train(const CheckpointOptions& options) {
  dist::init_process_group();
  at::set_num_threads(1);  // for products this small
  dist::set_seed(1, dist::get_rank());
  const Clouds dataset;
  dist::DistributedSampler sampler(dataset.size());
  auto dataloader = dist::make_data_loader(dataset, sampler, {.batch_size = BATCH_SIZE});

  nn::Sequential model(nn::Linear(FEATURES, 64), nn::ReLU(), nn::Linear(64, CLASSES));
  dist::DistributedDataParallel ddp(model);
  torch::optim::Adam optimizer(ddp.parameters(), 2e-3);
  dist::GradScaler scaler({}, {.parameters = model->named_parameters().pairs()});

  double first = 0, mean = 0;
  dist::Mean epoch_loss;
  std::int64_t index = 0;  // of the next micro-batch in its epoch
  int epoch = 0;
  Checkpoints checkpoints(options);
  checkpoints.state.add("model", model).add("optimizer", optimizer).add("scaler", scaler);
  checkpoints.state.add("sampler", sampler).add_each_rank("epoch_loss", epoch_loss).add_value("first", first);
  checkpoints.state.add_value("mean", mean).add_value("index", index).add_value("epoch", epoch);
  checkpoints.resume();
  for (; epoch < EPOCHS; ++epoch, index = 0, epoch_loss.reset()) {
    sampler.set_epoch(epoch);
    optimizer.zero_grad();
    const std::int64_t per_rank = (dataset.size() + dist::get_world_size() - 1) / dist::get_world_size();
    const std::int64_t batches = (per_rank + BATCH_SIZE - 1) / BATCH_SIZE;
    for (auto& batch : dataloader) {
      const std::int64_t group_begin = index / ACCUMULATION_STEPS * ACCUMULATION_STEPS;
      const std::int64_t in_group = std::min<std::int64_t>(ACCUMULATION_STEPS, batches - group_begin);
      const bool last_of_group = ++index == group_begin + in_group;

      std::optional<dist::DistributedDataParallelBase::NoSync> local;
      if (!last_of_group) local.emplace(ddp.no_sync());
      at::Tensor loss;
      {
        const auto mixed = dist::autocast(at::kCPU, at::kHalf);
        loss = nn::functional::cross_entropy(ddp->forward(batch.data), batch.target);
      }
      epoch_loss.add(loss, static_cast<double>(batch.target.size(0)));
      scaler.scale(loss / in_group).backward();
      if (!last_of_group) continue;

      scaler.unscale_(optimizer);
      nn::utils::clip_grad_norm_(ddp.parameters(), 5.0);
      scaler.step(optimizer);
      scaler.update();
      optimizer.zero_grad();
      checkpoints.after_step();
    }
    mean = epoch_loss.across_ranks();
    if (epoch == 0) first = mean;
    if (dist::get_rank() == 0)
      std::printf("epoch %d completed: loss %.4f, scale %g\n", epoch + 1, mean, scaler.get_scale());
  }
  if (!(mean < 0.5 * first)) throw std::runtime_error("the loss did not fall");
}

}  // namespace

int main(int argc, char** argv) { return run_training(argc, argv, train); }

// Virtual ranks: one training, the same bits on any number of processes. Every line that this prints, the
// checksum of the weights included, is the same for each of these:
//
//   build/lockstep run -n 1 --virtual-ranks 4 build/examples/virtual_ranks
//   build/lockstep run -n 3 --virtual-ranks 4 build/examples/virtual_ranks
//   build/examples/virtual_ranks --spawn 2                        # asks for its 4 virtual ranks itself
//
// What differs from a plain loop: the loader is walked in steps, and a step in its virtual ranks' batches.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <cstdio>

#include "examples/checkpoints.h"
#include "lockstep/lockstep.h"

namespace dist = lockstep;
namespace nn = torch::nn;

namespace {

constexpr int FEATURES = 20, CLASSES = 5, VIRTUAL_RANKS = 4, EPOCHS = 3;

// Points around five centres, the same in every process.
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
  dist::init_process_group("auto", {.virtual_ranks = VIRTUAL_RANKS});
  at::set_num_threads(1);        // sums depend on the number of threads
  dist::seed_virtual_ranks(42);  // dropout: each virtual rank its own random numbers
  torch::manual_seed(1);         // the first weights, the same in every process
  const Clouds dataset;
  dist::DistributedSampler sampler(dataset.size());  // for all virtual ranks of this process
  auto loader = dist::make_data_loader(dataset, sampler, {.batch_size = 25});

  nn::Sequential model(nn::Linear(FEATURES, 64), nn::BatchNorm1d(64), nn::ReLU(), nn::Dropout(0.2),
                       nn::Linear(64, CLASSES));
  dist::DistributedDataParallel ddp(model);
  torch::optim::SGD optimizer(ddp.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));

  double first = 0, last = 0;
  double loss_of_zero = 0;  // of virtual rank 0: process 0 has it, whatever the number of processes
  int epoch = 0;
  Checkpoints checkpoints(options);
  checkpoints.state.add("model", model).add("optimizer", optimizer).add("sampler", sampler);
  checkpoints.state.add_item("virtual_ranks", dist::virtual_rank_item()).add_value("epoch", epoch);
  checkpoints.state.add_each_rank_value("first", first).add_each_rank_value("last", last);
  checkpoints.state.add_each_rank_value("loss_of_zero", loss_of_zero);
  checkpoints.resume();
  for (; epoch < EPOCHS; ++epoch, loss_of_zero = 0) {
    sampler.set_epoch(epoch);
    for (auto& step : dist::virtual_steps(loader)) {
      optimizer.zero_grad();
      for (auto& batch : step) {
        const auto loss = nn::functional::cross_entropy(ddp->forward(batch.data), batch.target);
        loss.backward();  // that of the last virtual rank averages over all
        if (dist::get_virtual_rank() == 0) loss_of_zero += loss.item<double>();
      }
      optimizer.step();
      checkpoints.after_step();
    }
    last = loss_of_zero;
    if (epoch == 0) first = loss_of_zero;
    if (dist::get_rank() == 0) std::printf("epoch %d: %.17g\n", epoch + 1, loss_of_zero);
  }
  const std::string sha256 = dist::parameters_sha256(model->named_parameters().pairs());
  if (!dist::all_ranks_hold(sha256)) throw std::runtime_error("processes ended with different weights");
  if (dist::get_rank() != 0) return;
  std::printf("weights: %s\n", sha256.c_str());
  if (!(last < 0.7 * first)) throw std::runtime_error("the loss did not fall");
}

}  // namespace

int main(int argc, char** argv) { return run_training(argc, argv, train); }

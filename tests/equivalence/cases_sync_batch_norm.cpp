// What cases_sync_batch_norm.py describes, with Lockstep's SyncBatchNorm and with converted layers.
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include "lockstep/parallel/ddp/distributed_data_parallel.h"
#include "lockstep/parallel/sync_batch_norm/convert_sync_batchnorm.h"
#include "lockstep/parallel/sync_batch_norm/sync_batch_norm.h"
#include "tests/equivalence/equivalence.h"

namespace {

namespace nn = torch::nn;
using equivalence::Run;

template <typename First, typename Second> nn::Sequential make_net(const First& first, const Second& second) {
  return nn::Sequential(nn::Conv2d(nn::Conv2dOptions(1, 4, 3).bias(false)), first, nn::Tanh(), nn::Flatten(),
                        nn::Linear(nn::LinearOptions(144, 8).bias(false)), second, nn::Tanh(),
                        nn::Linear(8, 3));
}

void train_normalized(Run& run, nn::Sequential net) {
  run.load(*net);
  lockstep::DistributedDataParallel ddp(net);
  torch::optim::SGD optimizer(ddp.parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  for (run.step = 0; run.step < run.steps(); ++run.step) {
    optimizer.zero_grad();
    const at::Tensor loss = at::mse_loss(ddp->forward(run.share("x")), run.share("y"));
    loss.backward();
    run.record_gradients(*net);
    optimizer.step();
    run.record_loss(loss);
  }
  run.record_state(*net);
}

EQUIVALENCE_CASE(sync_batch_norm) {
  train_normalized(
      run, make_net(lockstep::SyncBatchNorm(4),
                    lockstep::SyncBatchNorm(lockstep::SyncBatchNormOptions(8).momentum(std::nullopt))));
}

EQUIVALENCE_CASE(convert_sync_batchnorm) {
  const auto net =
      make_net(nn::BatchNorm2d(4), nn::BatchNorm1d(nn::BatchNormOptions(8).momentum(std::nullopt)));
  train_normalized(run, lockstep::convert_sync_batchnorm(net));
}

}  // namespace

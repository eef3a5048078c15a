// What cases_join.py describes, with Lockstep's Join.
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include "lockstep/job/join.h"
#include "lockstep/parallel/ddp/distributed_data_parallel.h"
#include "lockstep/tensor/collectives.h"
#include "tests/equivalence/equivalence.h"

namespace {

namespace nn = torch::nn;
using equivalence::Run;

void train_unevenly(Run& run, bool by_initial) {
  const auto linear = [](int in) { return nn::Linear(nn::LinearOptions(in, 8).bias(false)); };
  nn::Sequential net(linear(6), nn::BatchNorm1d(8), nn::Tanh(), linear(8), nn::BatchNorm1d(8),
                     nn::Linear(8, 3));
  run.load(*net);
  lockstep::DistributedDataParallel ddp(net, {.bucket_cap_mb = 0.0005});
  torch::optim::SGD optimizer(ddp.parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  const at::Tensor losses = at::zeros({run.steps()}, at::kDouble);
  const auto loop = [&] {
    for (run.step = 0; run.step < run.steps() - 15 * (run.ranks() - 1 - run.rank()); ++run.step) {
      optimizer.zero_grad();
      const at::Tensor loss = at::mse_loss(ddp->forward(run.share("x")), run.share("y"));
      loss.backward();
      if (run.step == 0) run.record_gradients(*net);
      optimizer.step();
      losses[run.step] = loss.detach();
    }
  };
  lockstep::join({&ddp}, loop, {.divide_by_initial_world_size = by_initial});
  lockstep::broadcast(losses, run.ranks() - 1);
  run.set_losses({losses.data_ptr<double>(), losses.data_ptr<double>() + losses.numel()});
  run.record_state(*net);
}

EQUIVALENCE_CASE(join) { train_unevenly(run, true); }

EQUIVALENCE_CASE(join_over_active) { train_unevenly(run, false); }

}  // namespace

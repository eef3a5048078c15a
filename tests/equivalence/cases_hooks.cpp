// What cases_hooks.py describes, with Lockstep's communication hooks.
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include "lockstep/parallel/ddp/distributed_data_parallel.h"
#include "lockstep/parallel/gradients/hooks/hook_registry.h"
#include "lockstep/parallel/gradients/hooks/power_sgd_hook.h"
#include "tests/equivalence/equivalence.h"

namespace {

namespace nn = torch::nn;
using equivalence::Run;

void train_hooked(Run& run, const std::shared_ptr<lockstep::CommHook>& hook, double scale = 1) {
  nn::Sequential net(nn::Linear(6, 16), nn::Tanh(), nn::Linear(16, 12), nn::Tanh(), nn::Linear(12, 3));
  run.load(*net);
  lockstep::DistributedDataParallel ddp(net, {.bucket_cap_mb = 25});
  ddp.register_comm_hook(hook);
  torch::optim::SGD optimizer(ddp.parameters(), torch::optim::SGDOptions(0.05 / scale).momentum(0.9));
  for (run.step = 0; run.step < run.steps(); ++run.step) {
    optimizer.zero_grad();
    const at::Tensor loss = scale * at::mse_loss(ddp->forward(run.share("x")), run.share("y"));
    loss.backward();
    run.record_gradients(*net);
    optimizer.step();
    run.record_loss(loss);
  }
  run.record_state(*net);
}

EQUIVALENCE_CASE(fp16_compress) { train_hooked(run, lockstep::make_comm_hook("fp16_compress"), 1024); }

EQUIVALENCE_CASE(bf16_compress) { train_hooked(run, lockstep::make_comm_hook("bf16_compress"), 1024); }

EQUIVALENCE_CASE(powerSGD) {
  train_hooked(run,
               std::make_shared<lockstep::PowerSgdHook>(lockstep::PowerSgdOptions{.start_powerSGD_iter = 2}));
}

EQUIVALENCE_CASE(powerSGD_rank3) {
  train_hooked(run, std::make_shared<lockstep::PowerSgdHook>(
                        lockstep::PowerSgdOptions{.matrix_approximation_rank = 3, .start_powerSGD_iter = 2}));
}

}  // namespace

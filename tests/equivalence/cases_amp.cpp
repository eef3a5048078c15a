// What cases_amp.py describes, with Lockstep's DDP, autocast, GradScaler and checkpoint.
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/utils.h>

#include <limits>

#include "lockstep/amp/grad_scaler.h"
#include "lockstep/autograd/activation_checkpoint.h"
#include "lockstep/autograd/autocast.h"
#include "lockstep/parallel/ddp/distributed_data_parallel.h"
#include "tests/equivalence/equivalence.h"
#include "tests/equivalence/sgd.h"

namespace {

namespace nn = torch::nn;
using equivalence::Run;
using equivalence::sgd;
using equivalence::SMALL;
using lockstep::DistributedDataParallel;

nn::Sequential mlp() {
  return nn::Sequential(nn::Linear(6, 16), nn::Tanh(), nn::Linear(16, 16), nn::Tanh(), nn::Linear(16, 3));
}

template <typename Model, typename Loss> void train_scaled(Run& run, Model net, const Loss& loss_of) {
  run.load(*net);
  DistributedDataParallel ddp(net, {.bucket_cap_mb = SMALL});
  auto optimizer = sgd(ddp.parameters());
  for (run.step = 0; run.step < run.steps(); ++run.step) {
    optimizer.zero_grad();
    const at::Tensor loss = loss_of(ddp);
    loss.backward();
    run.record_gradients(*net);
    optimizer.step();
    run.record_loss(loss);
  }
  run.record_state(*net);
}

void train_bf16(Run& run) {
  train_scaled(run, mlp(), [&](auto& ddp) {
    const auto mixed = lockstep::autocast(at::kCPU, at::kBFloat16);
    return at::mse_loss(ddp->forward(run.share("x")), run.share("y"));
  });
}

EQUIVALENCE_CASE(amp_bf16) { train_bf16(run); }

EQUIVALENCE_CASE(amp_bf16_three) { train_bf16(run); }

EQUIVALENCE_CASE(amp_fp16_scaler) {
  nn::Sequential net = mlp();
  run.load(*net);
  DistributedDataParallel ddp(net, {.bucket_cap_mb = SMALL});
  auto optimizer = sgd(ddp.parameters());
  lockstep::GradScaler scaler({.init_scale = 4096, .growth_interval = 7});
  std::vector<double> scales;
  for (run.step = 0; run.step < run.steps(); ++run.step) {
    optimizer.zero_grad();
    at::Tensor loss;
    {
      const auto mixed = lockstep::autocast(at::kCPU, at::kHalf);
      loss = at::mse_loss(ddp->forward(run.share("x")), run.share("y"));
    }
    const auto phase = run.step % 20;
    const bool overflows = (phase == 3 || phase == 4 || phase == 12) && run.rank() == run.ranks() - 1;
    (scaler.scale(loss) * (overflows ? std::numeric_limits<double>::infinity() : 1.0)).backward();
    scaler.unscale_(optimizer);
    nn::utils::clip_grad_norm_(ddp.parameters(), 1.0);
    run.record_gradients(*net);
    scaler.step(optimizer);
    scaler.update();
    scales.push_back(scaler.get_scale());
    run.record_loss(loss);
  }
  run.record_state(*net);
  run.record("scales", torch::tensor(scales, at::kDouble));
}

struct DropoutNetImpl : nn::Module {
  DropoutNetImpl() {
    register_module("stem", stem);
    first = register_module("first", block());
    second = register_module("second", block());
    register_module("out", out);
  }
  static nn::Sequential block() { return nn::Sequential(nn::Linear(8, 8), nn::Tanh(), nn::Dropout(0.2)); }
  at::Tensor outer(const at::Tensor& x) { return lockstep::checkpoint(second, at::tanh(first->forward(x))); }
  at::Tensor forward(const at::Tensor& x) {
    return out(lockstep::checkpoint([this](const at::Tensor& h) { return outer(h); }, stem(x)));
  }
  nn::Linear stem{6, 8}, out{8, 3};
  nn::Sequential first{nullptr}, second{nullptr};
};
TORCH_MODULE(DropoutNet);

EQUIVALENCE_CASE(checkpoint_dropout) {
  train_scaled(run, DropoutNet(), [&](auto& ddp) {
    torch::manual_seed(1000 * run.step + run.rank());
    return at::mse_loss(ddp->forward(run.share("x")), run.share("y"));
  });
}

}  // namespace

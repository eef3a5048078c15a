// What cases_optim.py describes, with Lockstep's optimisers, clipping, accumulation and schedules.
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "lockstep/optim/adam.h"
#include "lockstep/optim/clip_grad.h"
#include "lockstep/optim/gradient_accumulation.h"
#include "lockstep/optim/lamb.h"
#include "lockstep/optim/lars.h"
#include "lockstep/optim/lr_scheduler.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/parallel/ddp/distributed_data_parallel.h"
#include "lockstep/parallel/zero/zero_redundancy_optimizer.h"
#include "tests/equivalence/equivalence.h"

namespace {

namespace nn = torch::nn;
namespace optim = lockstep::optim;
using equivalence::Run;
using Ddp = lockstep::DistributedDataParallel<nn::SequentialImpl>;

nn::Sequential model() { return nn::Sequential(nn::Linear(6, 16), nn::Tanh(), nn::Linear(16, 3)); }

at::Tensor loss_of(Run& run, Ddp& ddp, int micro = 0, int micros = 1) {
  return at::mse_loss(ddp.forward(run.share("x", micro, micros)), run.share("y", micro, micros));
}

// `backward` answers the loss to record; `step` is whatever follows it in a step.
template <typename Make, typename Backward, typename Step>
void train_stepping(Run& run, const Make& make_optimizer, const Backward& backward, const Step& step) {
  nn::Sequential net = model();
  run.load(*net);
  Ddp ddp(net, {.bucket_cap_mb = 0.0005});
  auto optimizer = make_optimizer(ddp);
  for (run.step = 0; run.step < run.steps(); ++run.step) {
    optimizer.zero_grad();
    const at::Tensor loss = backward(ddp);
    step(ddp);
    run.record_gradients(*net);
    optimizer.step();
    run.record_loss(loss);
  }
  run.record_state(*net);
}

template <typename Make> void train_with(Run& run, const Make& make_optimizer) {
  const auto backward = [&](Ddp& ddp) {
    at::Tensor loss = loss_of(run, ddp);
    loss.backward();
    return loss;
  };
  train_stepping(run, make_optimizer, backward, [](Ddp&) {});
}

optim::SGD plain_sgd(Ddp& ddp) { return optim::SGD(ddp.parameters(), optim::SGDOptions(0.05).momentum(0.9)); }

template <typename Step> void train_clipped(Run& run, const Step& clip) {
  const auto backward = [&](Ddp& ddp) {
    at::Tensor loss = loss_of(run, ddp);
    loss.backward();
    return loss;
  };
  train_stepping(run, plain_sgd, backward, clip);
}

EQUIVALENCE_CASE(zero_redundancy) {
  train_with(run, [](Ddp& ddp) {
    return lockstep::ZeroRedundancyOptimizer<optim::AdamW>(ddp.parameters(), optim::AdamWOptions(0.01));
  });
}

EQUIVALENCE_CASE(adamw) {
  train_with(run, [](Ddp& ddp) {
    std::vector<at::Tensor> weights;
    std::vector<at::Tensor> others;
    for (const at::Tensor& p : ddp.parameters()) (p.dim() > 1 ? weights : others).push_back(p);
    std::vector<optim::ParamGroup> groups;
    groups.emplace_back(weights,
                        std::make_unique<optim::AdamWOptions>(optim::AdamWOptions().weight_decay(0.1)));
    groups.emplace_back(others);
    return optim::AdamW(groups, optim::AdamWOptions(0.01).weight_decay(0).amsgrad(true));
  });
}

EQUIVALENCE_CASE(sgd) {
  nn::Sequential net = model();
  run.load(*net);
  Ddp ddp(net, {.bucket_cap_mb = 0.0005});
  optim::SGD optimizer(ddp.parameters(),
                       optim::SGDOptions(0.1).momentum(0.9).nesterov(true).weight_decay(1e-3));
  optim::SequentialLR scheduler(optimizer,
                                {optim::schedule::linear(0.01, 1, 10), optim::schedule::cosine(90)}, {10});
  for (run.step = 0; run.step < run.steps(); ++run.step) {
    optimizer.zero_grad();
    const at::Tensor loss = loss_of(run, ddp);
    loss.backward();
    run.record_gradients(*net);
    optimizer.step();
    scheduler.step();
    run.record_loss(loss);
  }
  run.record_state(*net);
}

EQUIVALENCE_CASE(lars) {
  train_with(run, [](Ddp& ddp) {
    return optim::LARS(ddp.parameters(), optim::LARSOptions(0.1).trust_coefficient(0.05).weight_decay(0.01));
  });
}

EQUIVALENCE_CASE(lamb) {
  train_with(run, [](Ddp& ddp) {
    return optim::LAMB(ddp.parameters(), optim::LAMBOptions(0.02).weight_decay(0.05));
  });
}

EQUIVALENCE_CASE(clip_norm) {
  train_clipped(run, [](Ddp& ddp) { lockstep::clip_grad_norm_(ddp.parameters(), 0.2); });
}

EQUIVALENCE_CASE(clip_value) {
  train_clipped(run, [](Ddp& ddp) { lockstep::clip_grad_value_(ddp.parameters(), 0.02); });
}

constexpr int MICROS = 2;

EQUIVALENCE_CASE(accumulate_means) {
  std::optional<lockstep::GradientAccumulation> accumulation;
  const auto backward = [&](Ddp& ddp) {
    if (!accumulation) accumulation.emplace(ddp, lockstep::GradientAccumulationOptions{.steps = MICROS});
    at::Tensor sum = at::zeros({}, at::kDouble);
    for (int i = 0; i < MICROS; ++i) {
      auto micro = accumulation->next();
      const at::Tensor loss = loss_of(run, ddp, i, MICROS);
      micro.backward(loss);
      sum += loss.detach() / (MICROS * MICROS);  // Python records the mean of what it gives to backward
    }
    return sum;
  };
  train_stepping(run, plain_sgd, backward,
                 [](Ddp& ddp) { lockstep::clip_grad_norm_(ddp.parameters(), 0.5); });
}

EQUIVALENCE_CASE(accumulate_tokens) {
  std::optional<lockstep::GradientAccumulation> accumulation;
  const auto backward = [&](Ddp& ddp) {
    if (!accumulation) accumulation.emplace(ddp, lockstep::GradientAccumulationOptions{.steps = MICROS});
    at::Tensor recorded = at::zeros({}, at::kDouble);
    for (int i = 0; i < MICROS; ++i) {
      auto micro = accumulation->next();
      const at::Tensor mask = run.share("mask", i, MICROS);
      const at::Tensor errors = ddp.forward(run.share("x", i, MICROS)) - run.share("y", i, MICROS);
      const at::Tensor sum = (errors.pow(2).mean(1) * mask).sum();
      micro.backward(sum, mask.sum().item<double>());
      recorded += sum.detach() * (run.ranks() / run.share("total", i, MICROS)[0]) / MICROS;
    }
    return recorded;
  };
  train_stepping(run, plain_sgd, backward, [](Ddp&) {});
}

}  // namespace

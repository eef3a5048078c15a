// What cases_ddp.py describes, with Lockstep's DDP.
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include "lockstep/parallel/ddp/distributed_data_parallel.h"
#include "testing/reentrant_checkpoint.h"
#include "tests/equivalence/equivalence.h"
#include "tests/equivalence/sgd.h"

namespace {

namespace nn = torch::nn;
using equivalence::Run;
using equivalence::sgd;
using equivalence::SMALL;
using lockstep::DistributedDataParallel;
using lockstep::DistributedDataParallelOptions;

// The loop of most cases: `output` is what the wrapped model makes of this rank's share of micro-batch
// `micro`.
template <typename Model, typename Output>
void train(Run& run, Model net, DistributedDataParallelOptions options, const Output& output,
           int micros = 1) {
  run.load(*net);
  options.bucket_cap_mb = SMALL;
  DistributedDataParallel ddp(net, options);
  auto optimizer = sgd(ddp.parameters());
  for (run.step = 0; run.step < run.steps(); ++run.step) {
    optimizer.zero_grad(/*set_to_none=*/run.step % 3 != 1 || options.find_unused_parameters);
    at::Tensor sum = at::zeros({}, at::kDouble);
    for (int micro = 0; micro < micros; ++micro) {
      std::optional<lockstep::DistributedDataParallelBase::NoSync> local;
      if (micro < micros - 1) local.emplace(ddp.no_sync());
      const at::Tensor loss = at::mse_loss(output(ddp, micro), run.share("y", micro, micros));
      loss.backward();
      sum += loss.detach();
    }
    run.record_gradients(*net);
    optimizer.step();
    run.record_loss(sum / micros);
  }
  run.record_state(*net);
}

template <typename Model>
void train_on_x(Run& run, Model net, const DistributedDataParallelOptions& options = {}, int micros = 1) {
  train(
      run, net, options, [&](auto& ddp, int micro) { return ddp->forward(run.share("x", micro, micros)); },
      micros);
}

EQUIVALENCE_CASE(plain) {
  nn::Sequential net(nn::Conv2d(1, 4, 3), nn::Tanh(), nn::Conv2d(4, 6, 3), nn::Tanh(), nn::Flatten(),
                     nn::Linear(96, 3));
  net[0]->as<nn::Conv2d>()->bias.requires_grad_(false);
  train_on_x(run, net);
}

struct TiedImpl : nn::Module {
  TiedImpl() {
    weight = register_parameter("weight", at::empty({6, 6}));
    register_parameter("same", weight);
    register_module("out", out);
  }
  at::Tensor forward(const at::Tensor& x) { return out(tanh(tanh(x.mm(weight)).mm(weight.t()))); }
  at::Tensor weight;
  nn::Linear out{6, 3};
};
TORCH_MODULE(Tied);

EQUIVALENCE_CASE(tied) { train_on_x(run, Tied()); }

nn::Sequential normalised() {
  const auto linear = [](int in) { return nn::Linear(nn::LinearOptions(in, 8).bias(false)); };
  return nn::Sequential(linear(6), nn::BatchNorm1d(8), nn::Tanh(), linear(8), nn::BatchNorm1d(8),
                        nn::Linear(8, 3));
}

EQUIVALENCE_CASE(buffers) { train_on_x(run, normalised()); }

EQUIVALENCE_CASE(accumulation) { train_on_x(run, normalised(), {}, /*micros=*/2); }

struct BranchesImpl : nn::Module {
  BranchesImpl() {
    register_module("stem", stem);
    register_module("branches", branches);
    for (int i = 0; i < 4; ++i) branches->push_back(nn::Linear(8, 3));
  }
  at::Tensor forward(const at::Tensor& x, std::int64_t branch) {
    return branches[static_cast<std::size_t>(branch)]->as<nn::Linear>()->forward(tanh(stem(x)));
  }
  nn::Linear stem{6, 8};
  nn::ModuleList branches;
};
TORCH_MODULE(Branches);

EQUIVALENCE_CASE(unused) {
  train(run, Branches(), {.find_unused_parameters = true},
        [&](auto& ddp, int) { return ddp->forward(run.share("x"), (run.step + run.rank()) % 3); });
}

struct RepeatedImpl : BranchesImpl {
  RepeatedImpl() { register_module("shared", shared); }
  at::Tensor forward(const at::Tensor& x, std::int64_t branch) {
    at::Tensor h = tanh(stem(x));
    for (int i = 0; i < 2; ++i) {
      h = lockstep::testing::reentrant_checkpoint([this](const at::Tensor& in) { return tanh(shared(in)); },
                                                  h);
    }
    return branches[static_cast<std::size_t>(branch)]->as<nn::Linear>()->forward(h);
  }
  nn::Linear shared{8, 8};
};
TORCH_MODULE(Repeated);

EQUIVALENCE_CASE(static_graph) {
  train(run, Repeated(), {.static_graph = true},
        [&](auto& ddp, int) { return ddp->forward(run.share("x"), run.rank() % 3); });
}

EQUIVALENCE_CASE(twice) {
  nn::Sequential net(nn::Linear(6, 8), nn::Tanh(), nn::Linear(8, 3));
  train(run, net, {}, [&](auto& ddp, int) {
    const at::Tensor x = run.share("x");
    return ddp->forward(x) - ddp->forward(x.flip(1));
  });
}

struct WordsImpl : nn::Module {
  WordsImpl() {
    register_module("table", table);
    register_module("out", out);
  }
  at::Tensor forward(const at::Tensor& words) { return out->forward(table(words).mean(1)); }
  nn::Embedding table{nn::EmbeddingOptions(40, 6).sparse(true)};
  nn::Sequential out{nn::Linear(6, 8), nn::Tanh(), nn::Linear(8, 3)};
};
TORCH_MODULE(Words);

EQUIVALENCE_CASE(sparse) {
  Words net;
  run.load(*net);
  DistributedDataParallel ddp(net, {.bucket_cap_mb = SMALL});
  torch::optim::SGD optimizer(ddp.parameters(), 0.5);
  for (run.step = 0; run.step < run.steps(); ++run.step) {
    optimizer.zero_grad();
    const at::Tensor loss = at::mse_loss(ddp->forward(run.share("words")), run.share("y"));
    loss.backward();
    run.record_gradients(*net);
    optimizer.step();
    run.record_loss(loss);
  }
  run.record_state(*net);
}

EQUIVALENCE_CASE(adversaries) {
  nn::Sequential g(nn::Linear(2, 8), nn::Tanh(), nn::Linear(8, 4));
  nn::Sequential d(nn::Linear(4, 8), nn::Tanh(), nn::Linear(8, 1));
  run.load(*g, "g");
  run.load(*d, "d");
  DistributedDataParallel ddp_g(g, {.bucket_cap_mb = SMALL});
  DistributedDataParallel ddp_d(d, {.bucket_cap_mb = SMALL});
  torch::optim::SGD steps_g(g->parameters(), 0.05);
  torch::optim::SGD steps_d(d->parameters(), 0.05);
  for (run.step = 0; run.step < run.steps(); ++run.step) {
    steps_d.zero_grad();
    const at::Tensor real = softplus(-ddp_d->forward(run.share("real"))).mean();
    real.backward();
    softplus(ddp_d->forward(ddp_g->forward(run.share("noise")).detach())).mean().backward();
    steps_d.step();
    steps_g.zero_grad();
    softplus(-ddp_d->forward(ddp_g->forward(run.share("noise")))).mean().backward();
    steps_g.step();
    run.record_loss(real);
  }
  run.record_state(*g, "g");
  run.record_state(*d, "d");
}

}  // namespace

// The toy program of Apex's examples/simple/distributed, line for line: a linear model under amp's O1 and
// Apex's DistributedDataParallel, on a fake batch of each process's own.
//
//   build/lockstep run -n 2 build/examples/apex_toy               # python -m torch.distributed.launch
//                                                                 # --nproc_per_node=2 ...
//   build/examples/apex_toy                                       # one process
//   build/lockstep run -n 2 build/examples/apex_toy --checkpoint-dir runs/toy --resume
#include <ATen/Parallel.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/loss.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <cstdio>

#include "examples/checkpoints.h"
#include "lockstep/compat/apex/amp.h"
#include "lockstep/compat/apex/parallel.h"

namespace apex = lockstep::compat::apex;
namespace amp = apex::amp;
namespace dist = lockstep;

// What Apex's amp.state_dict() has: the loss scale.
struct AmpState {
  dist::NamedTensors state_dict() const { return amp::state_dict(optimizer); }
  void load_state_dict(const dist::NamedTensors& state) { amp::load_state_dict(optimizer, state); }
  amp::Optimizer optimizer;
};

void train(const CheckpointOptions& options) {
  // FOR DISTRIBUTED: the launcher has set the environment; alone, a job of one.
  dist::init_process_group("auto", {.init_method = "env://"});
  at::set_num_threads(1);  // for products this small

  const int N = 64, D_in = 1024, D_out = 16;
  torch::manual_seed(dist::get_rank());
  // Each process receives its own batch of "fake input data" and "fake target data."
  const auto x = torch::randn({N, D_in});
  const auto y = torch::randn({N, D_out});

  torch::nn::Linear net(D_in, D_out);
  torch::optim::SGD sgd(net->parameters(), /*lr=*/1e-3);
  auto [model, optimizer] = amp::initialize(net, sgd, /*opt_level=*/"O1");
  // FOR DISTRIBUTED: After amp::initialize, wrap the model with apex::parallel::DistributedDataParallel.
  apex::parallel::DistributedDataParallel ddp(model);

  torch::nn::MSELoss loss_fn;
  at::Tensor loss;
  double first = 0, last = 0;
  int t = 0;
  AmpState amp_state{optimizer};
  Checkpoints checkpoints(options);
  checkpoints.state.add("model", net).add("optimizer", sgd).add("amp", amp_state).add_value("t", t);
  checkpoints.state.add_each_rank_value("first", first).add_each_rank_value("last", last);
  checkpoints.resume();
  while (t < 500) {
    optimizer.zero_grad();
    const auto y_pred = ddp(x);
    loss = loss_fn(y_pred, y);
    {
      const auto scaled_loss = amp::scale_loss(loss, optimizer);
      scaled_loss.backward();
    }
    optimizer.step();
    last = loss.item<double>();
    if (t++ == 0) first = last;
    checkpoints.after_step();
  }
  if (dist::get_local_rank() == 0) std::printf("final loss = %.4f\n", last);
  if (last >= first) throw std::runtime_error("the loss did not fall");
}

int main(int argc, char** argv) { return run_training(argc, argv, train); }

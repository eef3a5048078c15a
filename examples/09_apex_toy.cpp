// The toy program of Apex's examples/simple/distributed, line for line: a linear model under amp's O1 and
// Apex's DistributedDataParallel, on a fake batch of each process's own.
//
//   build/lockstep run -n 2 build/examples/apex_toy               # python -m torch.distributed.launch
//                                                                 # --nproc_per_node=2 ...
//   build/examples/apex_toy                                       # one process
#include <ATen/Parallel.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/loss.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <cstdio>

#include "examples/job.h"
#include "lockstep/compat/apex/amp.h"
#include "lockstep/compat/apex/parallel.h"

namespace apex = lockstep::compat::apex;
namespace amp = apex::amp;
namespace dist = lockstep;

void train() {
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
  at::Tensor first, loss;
  for (int t = 0; t < 500; ++t) {
    optimizer.zero_grad();
    const auto y_pred = ddp(x);
    loss = loss_fn(y_pred, y);
    {
      const auto scaled_loss = amp::scale_loss(loss, optimizer);
      scaled_loss.backward();
    }
    optimizer.step();
    if (t == 0) first = loss.detach();
  }
  if (dist::get_local_rank() == 0) std::printf("final loss = %.4f\n", loss.item<double>());
  if (loss.item<double>() >= first.item<double>()) throw std::runtime_error("the loss did not fall");
}

int main(int argc, char** argv) { return run_job(argc, argv, train); }

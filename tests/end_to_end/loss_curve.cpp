// Trains the model of loss_curve_test.py with Lockstep's DDP, from weights and data in a file, and prints
// each step's loss.
//
//   lockstep run -n 2 build/tests/loss_curve curve.safetensors STEPS
#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <unordered_map>

#include "examples/simple_cnn.h"
#include "lockstep/parallel/ddp/distributed_data_parallel.h"
#include "lockstep/tensor/collectives.h"
#include "lockstep/tensor/state_dict.h"

int main(int argc, char** argv) {
  if (argc != 3) return 64;
  at::set_num_threads(1);
  lockstep::init_process_group();
  std::unordered_map<std::string, at::Tensor> file;
  for (auto& [name, tensor] : lockstep::load_tensors(argv[1])) file[name] = tensor;
  SimpleCNN net;
  if (lockstep::get_rank() == 0) {  // the other ranks get rank 0's weights from DDP, as in Python
    const torch::NoGradGuard no_grad;
    for (auto& parameter : net->named_parameters())
      parameter.value().copy_(file.at("model." + parameter.key()));
  }
  lockstep::DistributedDataParallel ddp(net);
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9));
  const std::int64_t ranks = lockstep::get_world_size();
  const std::int64_t share = file.at("data").size(1) / ranks;
  for (int step = 0; step < std::atoi(argv[2]); ++step) {
    const auto mine = [&](const char* name) {
      const at::Tensor batches = file.at(name);
      return batches[step % batches.size(0)].narrow(0, share * lockstep::get_rank(), share);
    };
    optimizer.zero_grad();
    auto loss = torch::nn::functional::cross_entropy(ddp->forward(mine("data")), mine("target"));
    loss.backward();
    optimizer.step();
    const at::Tensor mean = loss.detach().clone();
    lockstep::all_reduce(mean, lockstep::ReduceOp::AVG);
    if (lockstep::get_rank() == 0) std::printf("%.9g\n", mean.item<double>());
  }
  return 0;
}

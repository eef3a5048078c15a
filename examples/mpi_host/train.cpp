// The part of an MPI program that trains: it is given a communicator and knows nothing else of its host,
// which may be written in C (host.c) or Fortran (host.f90).
//
// Every rank has its own samples of y = 2 a - 3 b + 1. DistributedDataParallel averages the gradients over
// the communicator, so all ranks end with the same weights, those of one process that has all samples.
#include "train.h"

#include <mpi.h>
#include <torch/nn.h>
#include <torch/optim.h>

#include <cstdio>
#include <functional>

#include "lockstep/job/mpi.h"
#include "lockstep/lockstep.h"

namespace dist = lockstep;

namespace {

struct Samples {
  torch::Tensor inputs, answers;
};

Samples samples_of(int rank) {
  const auto inputs = torch::stack({torch::arange(8) + rank, torch::arange(8).mul(3).remainder(7) - rank}, 1)
                          .to(torch::kFloat) /
                      8;
  return {inputs, inputs.matmul(torch::tensor({2.0F, -3.0F})).unsqueeze(1) + 1};
}

int train(const std::function<void()>& join) {
  try {
    join();
    const int rank = dist::get_rank();
    const int size = dist::get_world_size();
    torch::manual_seed(rank);  // the weights are those of rank 0 on all ranks
    torch::nn::Linear net(2, 1);
    dist::DistributedDataParallel ddp(net);
    torch::optim::SGD optimizer(net->parameters(), 0.3);
    const Samples mine = samples_of(rank);
    for (int step = 0; step < 1500; ++step) {
      optimizer.zero_grad();
      torch::mse_loss(ddp->forward(mine.inputs), mine.answers).backward();
      optimizer.step();
    }
    const bool right = torch::allclose(net->weight, torch::tensor({{2.0F, -3.0F}}), 1e-2, 1e-2) &&
                       torch::allclose(net->bias, torch::tensor({1.0F}), 1e-2, 1e-2);
    std::printf("rank %d of %d over %s: y = %.2f a %+.2f b %+.2f%s\n", rank, size,
                dist::get_backend().c_str(), net->weight[0][0].item<float>(), net->weight[0][1].item<float>(),
                net->bias[0].item<float>(), right ? "" : ", which is wrong");
    dist::destroy_process_group();
    return right ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

}  // namespace

int train_on(const void* comm) {
  return train([&] { dist::init_process_group_from_mpi(*static_cast<const MPI_Comm*>(comm)); });
}

int train_on_fortran(int comm) {
  return train([&] { dist::init_process_group_from_mpi_fortran(comm); });
}

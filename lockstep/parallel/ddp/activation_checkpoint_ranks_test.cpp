// Checkpointing inside DistributedDataParallel: the gradients are those without it.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "lockstep/autograd/activation_checkpoint.h"
#include "lockstep/parallel/ddp/distributed_data_parallel.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

// Blocks, of which the first and the last are one and the same and each forward leaves one out, when asked
// to.
struct DropoutNetImpl : torch::nn::Module {
  DropoutNetImpl() {
    for (int i = 0; i < 4; ++i) {
      blocks.push_back(register_module(
          "block" + std::to_string(i),
          torch::nn::Sequential(torch::nn::Linear(8, 8), torch::nn::Tanh(), torch::nn::Dropout(0.3))));
    }
  }
  at::Tensor forward(at::Tensor x, bool checkpointed, int left_out) {
    for (const int i : {0, 1, 2, 3, 0}) {
      if (i == left_out) continue;
      auto& block = blocks[static_cast<std::size_t>(i)];
      x = checkpointed ? checkpoint(block, x) : block->forward(x);
    }
    return x;
  }
  std::vector<torch::nn::Sequential> blocks;
};
TORCH_MODULE(DropoutNet);

void expect_same(int rank, const ProcessGroup& group, bool find_unused) {
  torch::set_num_threads(1);
  const auto train = [&](bool checkpointed) {
    torch::manual_seed(1);
    DropoutNet net;
    DistributedDataParallel ddp(
        net, {.process_group = group, .bucket_cap_mb = 0.0005, .find_unused_parameters = find_unused});
    torch::optim::SGD optimizer(ddp.parameters(), 0.1);
    torch::manual_seed(10 + rank);  // each rank has its own data and dropout
    for (int step = 0; step < 12; ++step) {
      optimizer.zero_grad();
      const auto loss = [&] {
        const int left_out = find_unused ? (step + rank) % 3 + 1 : -1;
        return ddp->forward(torch::randn({4, 8}), checkpointed, left_out).pow(2).mean();
      };
      {
        const auto local = ddp.no_sync();
        loss().backward();
      }
      loss().backward();
      optimizer.step();
    }
    return net->parameters();
  };
  const auto with = train(true), without = train(false);
  for (std::size_t i = 0; i < with.size(); ++i) EXPECT_TRUE(with[i].equal(without[i])) << i;
}

RANKS_TEST(Checkpoint, InsideDdp, Ranks(1, 2, 3, 4)) { expect_same(rank(), world(), false); }

RANKS_TEST(Checkpoint, InsideDdpWithUnusedParameters, Ranks(1, 2, 3, 4)) {
  expect_same(rank(), world(), true);
}

}  // namespace
}  // namespace lockstep

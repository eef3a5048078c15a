// Gradients large enough to be made in their buckets: what ranks compute equals what one process computes on
// the whole batch.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/parallel/ddp/distributed_data_parallel.h"
#include "lockstep/tensor/caching_allocator.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

constexpr int PLACED_BATCH = 12;
constexpr int PLACED_WIDTH = 256;

torch::nn::Sequential make_net() {
  torch::manual_seed(3);
  torch::nn::Sequential net;
  for (int i = 0; i < 4; ++i) {
    net->push_back(torch::nn::Linear(PLACED_WIDTH, PLACED_WIDTH));
    net->push_back(torch::nn::Tanh());
  }
  net->to(at::kDouble);
  return net;
}

template <typename Forward>
void train(const torch::nn::Sequential& net, Forward forward, const torch::Tensor& x) {
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.5).momentum(0.9));
  for (int step = 0; step < 6; ++step) {
    optimizer.zero_grad(/*set_to_none=*/step != 3);
    forward(x).pow(2).mean().backward();
    optimizer.step();
  }
}

RANKS_TEST(PlacedGradients, EqualThoseOfOneProcess, Ranks(1, 2, 3, 4)) {
  torch::set_num_threads(1);
  install_caching_allocator();
  const auto group = world();
  auto expected = make_net();
  auto net = make_net();
  const torch::Tensor x = torch::randn({PLACED_BATCH, PLACED_WIDTH}, at::kDouble);
  train(
      expected, [&](const torch::Tensor& all) { return expected->forward(all); }, x);
  DistributedDataParallel ddp(net, {.bucket_cap_mb = 1});
  const int part = PLACED_BATCH / group.size();
  train(
      net, [&](const torch::Tensor& share) { return ddp.forward(share); },
      x.narrow(0, group.rank() * part, part));
  for (const auto& item : expected->named_parameters()) {
    EXPECT_TRUE(torch::allclose(net->named_parameters()[item.key()], item.value(), 1e-10, 1e-12))
        << item.key();
  }
  EXPECT_LT(ddp.stats().bytes_copied, 6 * ddp.stats().bucket_bytes / 2);
}

}  // namespace
}  // namespace lockstep

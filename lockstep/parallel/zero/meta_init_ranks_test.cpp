// ShardedDataParallel of a module from meta_init(), beside one that was constructed whole.
#include "lockstep/tensor/meta_init.h"

#include <gmock/gmock.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/modules/transformerlayer.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/base/error.h"
#include "lockstep/optim/adam.h"
#include "lockstep/parallel/ddp/distributed_data_parallel.h"
#include "lockstep/parallel/zero/sharded_data_parallel.h"
#include "lockstep/tensor/random_state.h"
#include "testing/ranks.h"
#include "testing/tensors.h"

namespace lockstep {
namespace deferred {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
namespace nn = torch::nn;

// One frozen layer, a tied weight, buffers, and a second initialisation, as models of transformers have.
struct NetImpl : nn::Module {
  NetImpl() {
    conv = register_module("conv", nn::Conv2d(1, 64, 3));
    norm = register_module("norm", nn::BatchNorm2d(64));
    frozen = register_module("frozen", nn::Linear(64, 48));
    for (auto& parameter : frozen->parameters()) parameter.requires_grad_(false);
    layer = register_module(
        "layer", nn::TransformerEncoderLayer(nn::TransformerEncoderLayerOptions(48, 4).dropout(0)));
    lstm = register_module("lstm", nn::LSTM(nn::LSTMOptions(48, 40)));
    tied = register_parameter("tied", torch::randn({40, 40}));
    same = register_parameter("same", tied);
    offsets = register_buffer("offsets", torch::arange(2000, at::kFloat).mul_(0.001F));
    const torch::NoGradGuard no_grad;
    for (auto& item : named_parameters()) {
      if (item.value().dim() == 2) nn::init::normal_(item.value(), 0, 0.05);
    }
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor h = frozen(torch::relu(norm(conv(x))).mean({2, 3})).unsqueeze(0);
    const at::Tensor y = std::get<0>(lstm(layer(h)))[0];
    return torch::tanh(y.mm(tied)).mm(same.t()) + offsets.narrow(0, 7, 40);
  }
  nn::Conv2d conv{nullptr};
  nn::BatchNorm2d norm{nullptr};
  nn::Linear frozen{nullptr};
  nn::TransformerEncoderLayer layer{nullptr};
  nn::LSTM lstm{nullptr};
  at::Tensor tied, same, offsets;
};
TORCH_MODULE(Net);

// Each rank has a seed of its own: rank 0's values count, and each generator goes where it would go.
RANKS_TEST(MetaInit, ShardedTrainingIsThatOfAnOrdinaryConstruction, Ranks(1, 2, 3, 4),
           Backends("shm", "tcp", "hierarchical")) {
  torch::manual_seed(0);
  const Net first;  // rank 0's, in this process
  torch::manual_seed(static_cast<std::uint64_t>(rank()));
  Net expected;
  const at::Tensor after = get_rng_state();
  torch::manual_seed(static_cast<std::uint64_t>(rank()));
  Net net = meta_init([] { return Net(); });
  EXPECT_TRUE(torch::equal(get_rng_state(), after));
  EXPECT_TRUE(is_deferred(net->tied));

  ShardedDataParallel model(net);
  EXPECT_TRUE(torch::equal(get_rng_state(), after));
  for (const auto& item : first->named_parameters())
    EXPECT_TRUE(torch::equal(net->named_parameters()[item.key()], item.value())) << item.key();
  for (const auto& item : first->named_buffers())
    EXPECT_TRUE(torch::equal(net->named_buffers()[item.key()], item.value())) << item.key();
  EXPECT_TRUE(net->tied.is_same(net->same));

  ShardedDataParallel ordinary(expected);
  auto optimizer = model.optimizer<optim::AdamW>(optim::AdamWOptions(0.01));
  auto other = ordinary.optimizer<optim::AdamW>(optim::AdamWOptions(0.01));
  for (std::uint64_t step = 0; step < 3; ++step) {
    const at::Tensor x =
        testing::random_values({6, 1, 8, 8}, 10 * step + static_cast<std::uint64_t>(rank()), at::kFloat);
    model->forward(x).square().mean().backward();
    ordinary->forward(x).square().mean().backward();
    optimizer.step();
    other.step();
  }
  for (const auto& item : expected->named_parameters())
    EXPECT_TRUE(torch::equal(net->named_parameters()[item.key()], item.value())) << item.key();
}

RANKS_TEST(MetaInit, IsRefusedByWrappersThatDoNotPlaceIt, Ranks(2), Backends("shm")) {
  Net net = meta_init([] { return Net(); });
  EXPECT_THAT([&] { const DistributedDataParallel model(net); },
              ThrowsMessage<InvalidArgument>(HasSubstr("\"tied\" has no memory yet")));
}

}  // namespace
}  // namespace deferred
}  // namespace lockstep

#include "lockstep/parallel/sync_batch_norm/convert_sync_batchnorm.h"

#include <ATen/ATen.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/nn/modules/linear.h>

#include "lockstep/base/error.h"
#include "lockstep/parallel/sync_batch_norm/sync_batch_norm.h"
#include "lockstep/tensor/collectives.h"
#include "testing/ranks.h"
#include "testing/tensors.h"

// A converted model on each rank's share is the same model, not converted, on the joined batch.
namespace lockstep {
namespace {

namespace nn = torch::nn;
using ::testing::HasSubstr;
using testing::random_values;
using ::testing::ThrowsMessage;

// Layers as typed members, some in containers, one used twice.
struct ConvertedNetImpl : nn::Module {
  ConvertedNetImpl() {
    register_module("conv", conv);
    register_module("first", first);
    register_module("body", body);
    register_module("list", list);
    register_module("bare", bare);
    to(at::kDouble);
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = first(conv(x)).relu();
    y = body->forward(y);
    y = list[0]->as<nn::BatchNorm2d>()->forward(y).tanh();
    return bare(list[0]->as<nn::BatchNorm2d>()->forward(y));
  }
  nn::Conv2d conv{nn::Conv2dOptions(2, 3, 2)};
  nn::BatchNorm2d first{3};
  nn::Sequential body{nn::Conv2d(3, 4, 1), nn::BatchNorm2d(nn::BatchNorm2dOptions(4).momentum(std::nullopt))};
  nn::ModuleList list{nn::BatchNorm2d(nn::BatchNorm2dOptions(4).track_running_stats(false))};
  nn::BatchNorm2d bare{nn::BatchNorm2dOptions(4).affine(false).track_running_stats(false)};
};
TORCH_MODULE(ConvertedNet);

void copy_state(nn::Module& to, const nn::Module& from) {
  const at::NoGradGuard no_grad;
  for (const auto& item : from.named_parameters()) to.named_parameters()[item.key()].copy_(item.value());
  for (const auto& item : from.named_buffers()) to.named_buffers()[item.key()].copy_(item.value());
}

void expect_near(const at::Tensor& actual, const at::Tensor& expected, const std::string& what) {
  EXPECT_LE((actual - expected).abs().max().item<double>(), 1e-11 * (1 + expected.abs().max().item<double>()))
      << what;
}

RANKS_TEST(ConvertSyncBatchnorm, MakesAModelThatSeesTheJoinedBatch, Ranks(1, 2, 3, 4)) {
  ConvertedNet whole;
  ConvertedNet net;
  for (const auto& item : whole->named_parameters()) broadcast(item.value(), 0);
  copy_state(*net, *whole);
  EXPECT_EQ(convert_sync_batchnorm(*net), 4U);
  for (std::uint64_t step = 0; step < 3; ++step) {
    const at::Tensor data = random_values({3 * size(), 2, 4, 4}, step);
    const at::Tensor slope = random_values({3 * size(), 4, 3, 3}, 50 + step);
    const at::Tensor input = data.clone().set_requires_grad(true);
    const at::Tensor expected = whole->forward(input);
    (expected * slope).sum().backward();
    const auto share = [&](const at::Tensor& all) { return all.narrow(0, 3 * rank(), 3); };
    const at::Tensor own = share(data).clone().set_requires_grad(true);
    const at::Tensor output = net->forward(own);
    (output * share(slope)).sum().backward();
    expect_near(output, share(expected), "output");
    expect_near(own.grad(), share(input.grad()), "gradient of the input");
  }
  for (const auto& item : whole->named_parameters()) {
    const at::Tensor sum = net->named_parameters()[item.key()].grad().clone();
    all_reduce(sum);
    expect_near(sum, item.value().grad(), item.key());
  }
  for (const auto& item : whole->named_buffers()) {
    expect_near(net->named_buffers()[item.key()].to(at::kDouble), item.value().to(at::kDouble), item.key());
  }
}

// Nothing changes for layers that were not converted, for clones, and in eval mode: rank 0 may use them
// alone.
RANKS_TEST(ConvertSyncBatchnorm, ConvertsNothingElse, Ranks(2)) {
  nn::BatchNorm2d converted(3);
  nn::BatchNorm2d other(3);
  nn::BatchNorm2d evaluated(3);
  nn::BatchNorm2d bare(nn::BatchNorm2dOptions(3).affine(false).track_running_stats(false));
  nn::InstanceNorm2d instance(nn::InstanceNorm2dOptions(3).affine(true).track_running_stats(true));
  converted = convert_sync_batchnorm(converted);
  evaluated = convert_sync_batchnorm(evaluated);
  bare = convert_sync_batchnorm(bare);
  convert_sync_batchnorm(*instance);
  evaluated->eval();
  bare->eval();
  const at::Tensor data = random_values({4, 3, 2, 2}, 1).to(at::kFloat) + rank();
  if (rank() == 0) {
    const auto clone = std::dynamic_pointer_cast<nn::BatchNorm2dImpl>(converted->clone());
    const at::Tensor rows = data.transpose(0, 1).contiguous();  // a channel's values are normalised together
    const at::Tensor expected = at::layer_norm(rows, {4, 2, 2}).transpose(0, 1);
    EXPECT_TRUE(at::allclose(other->forward(data), expected, 1e-4, 1e-5));
    EXPECT_TRUE(at::allclose(clone->forward(data), expected, 1e-4, 1e-5));
    EXPECT_TRUE(at::allclose(bare->forward(data), expected, 1e-4, 1e-5));
    EXPECT_TRUE(at::allclose(evaluated->forward(data), data, 1e-4, 1e-4));
    instance->forward(data);
  }
  barrier();
}

// to() keeps the tensors by which a layer is known; so does moving the layer to another holder.
RANKS_TEST(ConvertSyncBatchnorm, OutlivesTo, Ranks(2)) {
  nn::Sequential net(nn::BatchNorm1d(2));
  net = convert_sync_batchnorm(net);
  net->to(at::kDouble);
  const at::Tensor whole = random_values({6, 2}, 3);
  const at::Tensor expected = at::batch_norm(whole, {}, {}, {}, {}, true, 0.1, 1e-5, false);
  const at::Tensor output = net->forward(whole.narrow(0, 3 * rank(), 3));
  expect_near(output, expected.narrow(0, 3 * rank(), 3), "output");
  {
    const at::NoGradGuard no_grad;
    EXPECT_TRUE(net->forward(whole.narrow(0, 3 * rank(), 3)).equal(output));
  }
  const c10::InferenceMode inference;
  EXPECT_TRUE(net->forward(whole.narrow(0, 3 * rank(), 3)).equal(output));
}

RANKS_TEST(ConvertSyncBatchnorm, NeedsToKnowHowLongALayerLives, Ranks(1)) {
  nn::BatchNorm1dImpl layer(3);
  EXPECT_THAT([&] { convert_sync_batchnorm(layer); },
              ThrowsMessage<InvalidArgument>(HasSubstr("held by no shared_ptr")));
  ConvertedNetImpl net;  // its children are held
  EXPECT_EQ(convert_sync_batchnorm(net), 4U);
}

}  // namespace
}  // namespace lockstep

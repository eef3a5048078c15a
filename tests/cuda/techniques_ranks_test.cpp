// Training techniques on a GPU: the same values as on the CPU, or as in one process there.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/amp/grad_scaler.h"
#include "lockstep/autograd/activation_checkpoint.h"
#include "lockstep/autograd/autocast.h"
#include "lockstep/compat/apex/amp.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/clip_grad.h"
#include "lockstep/optim/lamb.h"
#include "lockstep/optim/lars.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/parallel/ddp/distributed_data_parallel.h"
#include "lockstep/parallel/sync_batch_norm/convert_sync_batchnorm.h"
#include "lockstep/parallel/sync_batch_norm/sync_batch_norm.h"
#include "lockstep/tensor/state_dict.h"
#include "lockstep/train/parameters_sha256.h"
#include "testing/ranks.h"
#include "testing/temp_folder.h"
#include "tests/cuda/training.h"

namespace lockstep::cuda_tests {
namespace {

constexpr double CLOSE = 1e-10;

// ---- SyncBatchNorm

// The shares are unequal: rank r has 2 + r of the samples.
std::int64_t first_sample(int rank) { return 2 * rank + rank * (rank - 1) / 2; }

RANKS_TEST(CudaSyncBatchNorm, EqualsBatchNormOfTheJoinedBatch, Ranks(1, 2, 3), Backends("nccl")) {
  torch::manual_seed(3);
  const at::Tensor all = torch::randn({first_sample(size()), 5, 3, 3}, at::kDouble) * 3 + 10;
  const at::Tensor slopes = torch::randn_like(all);
  torch::nn::BatchNorm2d alone(5);
  alone->to(at::kDouble);
  SyncBatchNorm norm(SyncBatchNormOptions(5).process_group(world()));
  norm->to(gpu_of(world()), at::kDouble);
  for (int step = 0; step < 3; ++step) {
    const at::Tensor whole = (all * (step + 1)).requires_grad_(true);
    const at::Tensor mine = (all * (step + 1))
                                .narrow(0, first_sample(rank()), 2 + rank())
                                .to(gpu_of(world()))
                                .requires_grad_(true);
    const at::Tensor expected = alone->forward(whole);
    const at::Tensor output = norm->forward(mine);
    (expected * slopes).sum().backward();
    (output * slopes.narrow(0, first_sample(rank()), 2 + rank()).to(gpu_of(world()))).sum().backward();
    const auto my_part = [&](const at::Tensor& of) { return of.narrow(0, first_sample(rank()), 2 + rank()); };
    EXPECT_TRUE(output.cpu().allclose(my_part(expected), CLOSE, CLOSE));
    EXPECT_TRUE(mine.grad().cpu().allclose(my_part(whole.grad()), 1e-8, CLOSE));
  }
  EXPECT_TRUE(norm->running_mean.cpu().allclose(alone->running_mean, CLOSE));
  EXPECT_TRUE(norm->running_var.cpu().allclose(alone->running_var, CLOSE));
  EXPECT_EQ(norm->num_batches_tracked.item<std::int64_t>(), 3);
  norm->eval();
  alone->eval();
  EXPECT_TRUE(norm->forward(all.to(gpu_of(world()))).cpu().allclose(alone->forward(all), CLOSE, CLOSE));
}

RANKS_TEST(CudaSyncBatchNorm, ConvertedNetWithDdpEqualsOneProcess, Ranks(2, 3), Backends("nccl")) {
  Net net = make_net(0, /*normalises=*/true);
  Net alone = make_net(0, true);
  net->to(gpu_of(world()));
  EXPECT_EQ(convert_sync_batchnorm(*net, world()), 1u);
  DistributedDataParallel ddp(net, {.process_group = world()});
  torch::optim::SGD ours(ddp.parameters(), 0.05);
  torch::optim::SGD theirs(alone->parameters(), 0.05);
  for (int step = 0; step < 5; ++step) {
    const Batch whole = Batch::make(step);
    const Batch mine = whole.share(world());
    ours.zero_grad();
    theirs.zero_grad();
    torch::cross_entropy_loss(ddp->forward(mine.data), mine.target).backward();
    torch::cross_entropy_loss(alone->forward(whole.data), whole.target).backward();
    ours.step();
    theirs.step();
  }
  expect_close(net->named_parameters(), alone->named_parameters(), 1e-8);
  expect_close(net->named_buffers(), alone->named_buffers(), 1e-8);
}

// ---- precision

RANKS_TEST(CudaAutocast, LowersAndRestores, Ranks(1), Backends("nccl")) {
  const at::Tensor a = torch::ones({4, 4}, at::TensorOptions(at::kFloat).device(gpu_of(world())));
  {
    const auto mixed = autocast(at::kCUDA);
    EXPECT_EQ(a.mm(a).scalar_type(), at::kHalf);
    const auto inner = autocast(at::kCUDA, at::kBFloat16);
    EXPECT_EQ(a.mm(a).scalar_type(), at::kBFloat16);
  }
  EXPECT_EQ(a.mm(a).scalar_type(), at::kFloat);
}

// An overflow on one rank alone: all skip together, the scale halves, and training goes on.
RANKS_TEST(CudaGradScaler, RanksSkipTogether, Ranks(2, 3), Backends("nccl")) {
  const auto options = at::TensorOptions(at::kFloat).device(gpu_of(world())).requires_grad(true);
  const at::Tensor w = torch::ones({3}, options);
  torch::optim::SGD optimizer({w}, 0.5);
  GradScaler scaler({.init_scale = 8}, {.process_group = world(), .parameters = {{"w", w}}});
  const auto step = [&](double factor) {
    optimizer.zero_grad();
    scaler.scale((w * factor).sum()).backward();
    const bool taken = scaler.step(optimizer);
    scaler.update();
    return taken;
  };
  EXPECT_TRUE(step(1));
  EXPECT_TRUE(w.detach().cpu().equal(torch::full({3}, 0.5F)));
  EXPECT_FALSE(step(rank() == 1 ? INFINITY : 1));
  EXPECT_EQ(scaler.get_scale(), 4);
  ASSERT_TRUE(scaler.last_overflow());
  EXPECT_EQ(scaler.last_overflow()->parameter, "w");
  EXPECT_EQ(scaler.last_overflow()->rank, 1);
  EXPECT_TRUE(step(-1));
  EXPECT_TRUE(w.detach().cpu().equal(torch::ones({3})));
}

RANKS_TEST(CudaGradScaler, WithAutocastAndDdp, Ranks(2), Backends("nccl")) {
  Net net = make_net(0);
  net->to(gpu_of(world()), at::kFloat);
  DistributedDataParallel ddp(net, {.process_group = world()});
  optim::SGD optimizer(ddp.parameters(), optim::SGDOptions(0.1).momentum(0.9));
  GradScaler scaler({.init_scale = 1024}, {.process_group = world()});
  const Batch batch = Batch::make(0).share(world());
  double first = 0;
  double last = 0;
  for (int step = 0; step < 40; ++step) {
    optimizer.zero_grad();
    at::Tensor loss;
    {
      const auto mixed = autocast(at::kCUDA, at::kBFloat16);
      loss = torch::cross_entropy_loss(ddp->forward(batch.data.to(at::kFloat)), batch.target);
    }
    scaler.scale(loss).backward();
    scaler.unscale_(optimizer);
    clip_grad_norm_(ddp.parameters(), 1.0);
    EXPECT_TRUE(scaler.step(optimizer));
    scaler.update();
    last = loss.item<double>();
    if (step == 0) first = last;
  }
  EXPECT_LT(last, 0.5 * first);
}

// The article's loop, on every level.
RANKS_TEST(CudaApex, EveryLevelTrains, Ranks(1), Backends("nccl")) {
  namespace amp = compat::apex::amp;
  for (const char* const level : {"O0", "O1", "O2", "O3"}) {
    torch::nn::Linear net(8, 4);
    net->to(gpu_of(world()));
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer] = amp::initialize(net, sgd, level);
    const at::Tensor x = torch::ones({6, 8}, gpu_of(world()));
    const auto loss_of = [&, &model = model] { return model.forward(x).square().mean(); };
    const double first = loss_of().item<double>();
    for (int step = 0; step < 20; ++step) {
      optimizer.zero_grad();
      auto loss = loss_of();
      {
        auto scaled_loss = amp::scale_loss(loss, optimizer);
        scaled_loss.backward();
      }
      optimizer.step();
    }
    EXPECT_LT(loss_of().item<double>(), 0.1 * first) << level;
  }
}

// ---- memory

at::Tensor with_dropout(const at::Tensor& x) { return torch::dropout(torch::tanh(x * 2), 0.5, true) * x; }

RANKS_TEST(CudaCheckpoint, HasTheGradientsOfNoCheckpoint, Ranks(1), Backends("nccl")) {
  const auto gradient = [&](bool checkpointed) {
    torch::manual_seed(11);
    const at::Tensor x = torch::linspace(-1, 1, 50, at::kDouble).to(gpu_of(world())).requires_grad_(true);
    at::Tensor y = checkpointed ? checkpoint(with_dropout, x) : with_dropout(x);
    y = checkpointed ? checkpoint(with_dropout, y) : with_dropout(y);
    y.sum().backward();
    return x.grad().cpu();
  };
  const at::Tensor expected = gradient(false);
  EXPECT_TRUE(gradient(true).equal(expected));
  EXPECT_GT(expected.abs().max().item<double>(), 0);
}

// ---- optimisers: the kernels for the CPU must not be taken, and the results be theirs

template <typename Optimizer, typename Options>
void expect_same_steps(const at::Device& gpu, const Options& options) {
  const auto train = [&](at::Device device) {
    std::vector<at::Tensor> weights;
    for (const std::vector<std::int64_t>& sizes : {std::vector<std::int64_t>{7, 5}, {33}})
      weights.push_back(torch::linspace(-1, 1, c10::multiply_integers(sizes), at::kDouble)
                            .view(sizes)
                            .to(device)
                            .requires_grad_(true));
    Optimizer optimizer(weights, options);
    for (int step = 0; step < 4; ++step) {
      optimizer.zero_grad();
      for (const at::Tensor& w : weights) (w.square() * (step + 1) + w).sum().backward();
      clip_grad_norm_(weights, 3.0);
      optimizer.step();
    }
    return std::vector<at::Tensor>{weights[0].detach().cpu(), weights[1].detach().cpu()};
  };
  const auto expected = train(at::kCPU);
  const auto own = train(gpu);
  for (std::size_t i = 0; i < own.size(); ++i) EXPECT_TRUE(own[i].allclose(expected[i], 1e-9, 1e-12)) << i;
}

RANKS_TEST(CudaOptimizers, StepAsOnTheCpu, Ranks(1), Backends("nccl")) {
  const at::Device gpu = gpu_of(world());
  expect_same_steps<optim::SGD>(gpu, optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.01).nesterov(true));
  expect_same_steps<optim::Adam>(gpu, optim::AdamOptions(0.1).amsgrad(true));
  expect_same_steps<optim::AdamW>(gpu, optim::AdamWOptions(0.1));
  expect_same_steps<optim::LARS>(gpu, optim::LARSOptions(0.1).momentum(0.9).weight_decay(0.01));
  expect_same_steps<optim::LAMB>(gpu, optim::LAMBOptions(0.1).weight_decay(0.01));
}

// ---- files and fingerprints

std::string fingerprint_of(const Net& net) { return parameters_sha256(net->named_parameters().pairs()); }

RANKS_TEST(CudaState, IsSavedAndLoaded, Ranks(1), Backends("nccl")) {
  const testing::TempFolder folder;
  Net net = make_net(1);
  const std::string fingerprint = fingerprint_of(net);
  net->to(gpu_of(world()));
  EXPECT_EQ(fingerprint_of(net), fingerprint);
  save_state_dict(*net, folder / "net.pt");
  save_state_dict(*net, folder / "net.safetensors");
  Net other = make_net(2);
  other->to(gpu_of(world()));
  load_state_dict(*other, folder / "net.safetensors");
  EXPECT_TRUE(other->out->weight.is_cuda());
  EXPECT_EQ(fingerprint_of(other), fingerprint);
}

}  // namespace
}  // namespace lockstep::cuda_tests

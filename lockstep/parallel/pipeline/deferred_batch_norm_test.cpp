#include "lockstep/parallel/pipeline/deferred_batch_norm.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"

namespace lockstep::deferred_batch_norm_test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

torch::nn::BatchNormOptions three(std::optional<double> momentum = 0.1) {
  return torch::nn::BatchNormOptions(3).momentum(momentum);
}

// Micro-batches of unequal size give the running statistics that BatchNorm has of the whole batch.
TEST(DeferredBatchNorm, CommitsTheStatisticsOfTheWholeBatch) {
  for (const std::optional<double> momentum :
       {std::optional(0.1), std::optional(0.5), std::optional<double>()}) {
    DeferredBatchNorm norm(three(momentum));
    torch::nn::BatchNorm2d answer(three(momentum));
    norm->to(at::kDouble);
    answer->to(at::kDouble);
    for (int batch = 0; batch < 3; ++batch) {
      const at::Tensor x = torch::randn({5, 3, 4, 2}, at::kDouble) * 10 + batch;
      answer->forward(x);
      for (const at::Tensor& part : x.split_with_sizes({2, 2, 1})) norm->forward(part);
      EXPECT_EQ(norm->num_batches_tracked.item<int>(), batch);
      norm->commit();
      EXPECT_EQ(norm->num_batches_tracked.item<int>(), batch + 1);
      EXPECT_TRUE(at::allclose(norm->running_mean, answer->running_mean, 1e-12, 1e-12));
      EXPECT_TRUE(at::allclose(norm->running_var, answer->running_var, 1e-12, 1e-12));
    }
    norm->commit();  // nothing new
    EXPECT_EQ(norm->num_batches_tracked.item<int>(), 3);
  }
}

TEST(DeferredBatchNorm, NormalisesAMicroBatchByItselfAndEvalByTheRunningStatistics) {
  DeferredBatchNorm norm(three());
  torch::nn::BatchNorm1d answer(three());
  const at::Tensor x = torch::randn({5, 3}), y = x.clone();
  x.requires_grad_();
  y.requires_grad_();
  const at::Tensor weights = torch::randn({5, 3});
  const at::Tensor output = norm->forward(x), expected = answer->forward(y);
  (output * weights).sum().backward();
  (expected * weights).sum().backward();
  EXPECT_TRUE(output.equal(expected));
  EXPECT_TRUE(x.grad().equal(y.grad()));
  EXPECT_TRUE(norm->weight.grad().equal(answer->weight.grad()));
  norm->commit();
  norm->eval();
  answer->eval();
  EXPECT_TRUE(at::allclose(norm->forward(x), answer->forward(x)));
  const auto names = [](const torch::nn::Module& module) {
    std::vector<std::string> all = module.named_parameters().keys();
    for (const std::string& name : module.named_buffers().keys()) all.push_back(name);
    return all;
  };
  EXPECT_EQ(names(*norm), names(*answer));
}

TEST(DeferredBatchNorm, CountsNothingWhilePausedAndForgetsWhatIsDiscarded) {
  torch::nn::Sequential net{DeferredBatchNorm(three())};
  const at::Tensor x = torch::randn({5, 3});
  {
    const DeferredBatchNormPause pause;
    net->forward(x);
  }
  commit_deferred_batch_norms(net.get());
  net->forward(x);
  discard_deferred_batch_norms(net.get());
  commit_deferred_batch_norms(net.get());
  commit_deferred_batch_norms(nullptr);
  EXPECT_TRUE(net->named_buffers()["0.running_mean"].equal(torch::zeros({3})));
  net->forward(x);
  commit_deferred_batch_norms(net.get());
  EXPECT_TRUE(at::allclose(net->named_buffers()["0.running_mean"], 0.1 * x.mean(0)));
}

TEST(DeferredBatchNorm, RefusesOtherShapes) {
  DeferredBatchNorm norm(three());
  for (const at::Tensor& x : {torch::ones({3}), torch::ones({2, 4})})
    EXPECT_THAT([&] { norm->forward(x); },
                ThrowsMessage<InvalidArgument>(HasSubstr("the number of channels, 3")));
}

}  // namespace
}  // namespace lockstep::deferred_batch_norm_test

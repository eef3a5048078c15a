#include "lockstep/compat/apex/amp.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <limits>

#include "lockstep/base/error.h"

namespace lockstep::compat::apex::amp {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr double INF = std::numeric_limits<double>::infinity();

torch::nn::Sequential net_with_batch_norm() {
  torch::manual_seed(3);
  return torch::nn::Sequential(torch::nn::Linear(4, 6), torch::nn::BatchNorm1d(6), torch::nn::ReLU(),
                               torch::nn::Linear(6, 2));
}

torch::optim::SGD sgd(const torch::nn::Module& net) {
  return torch::optim::SGD(net.parameters(), torch::optim::SGDOptions(0.125).momentum(0.5));
}

std::vector<at::Tensor> copies(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> all;
  for (const at::Tensor& one : tensors) all.push_back(one.detach().clone());
  return all;
}

bool equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  bool same = a.size() == b.size();
  for (std::size_t i = 0; same && i < a.size(); ++i) same = a[i].equal(b[i]);
  return same;
}

TEST(ApexAmp, LevelsAreApexs) {
  const auto of = [](const char* level) { return properties_of(level, {}); };
  EXPECT_EQ(of("O0").cast_model_type, at::kFloat);
  EXPECT_EQ(of("O0").loss_scale, 1);
  EXPECT_FALSE(of("O1").cast_model_type);
  EXPECT_EQ(of("O1").autocast, at::kHalf);
  EXPECT_EQ(of("O1").loss_scale, 0);
  EXPECT_EQ(of("O2").cast_model_type, at::kHalf);
  EXPECT_TRUE(of("O2").keep_batchnorm_fp32);
  EXPECT_TRUE(of("O2").master_weights);
  EXPECT_EQ(of("O2").loss_scale, 0);
  EXPECT_FALSE(of("O3").keep_batchnorm_fp32);
  EXPECT_FALSE(of("O3").master_weights);
  EXPECT_EQ(of("O3").loss_scale, 1);
  EXPECT_EQ(properties_of("O3", {.keep_batchnorm_fp32 = true, .loss_scale = 128}).loss_scale, 128);
  EXPECT_EQ(properties_of("O2", {.enabled = false}).cast_model_type, std::nullopt);
  EXPECT_THAT([] { properties_of("01", {}); }, ThrowsMessage<InvalidArgument>(HasSubstr("letter O")));
  EXPECT_THAT([] { properties_of("O1", {.master_weights = true}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("\"O1\" master_weights must not be set")));
}

TEST(ApexAmp, O1RunsTheModelUnderAutocastAndNothingElse) {
  auto net = net_with_batch_norm();
  auto steps = sgd(*net);
  const auto [model, optimizer] = initialize(net, steps, "O1");
  const at::Tensor x = torch::randn({5, 4});
  const at::Tensor y = model(x);
  EXPECT_EQ(y.scalar_type(), at::kFloat);
  const auto mixed = autocast(at::kCPU, at::kHalf);
  net->eval(), model->eval();
  EXPECT_TRUE(model(x).equal(net->forward(x).to(at::kFloat)));
  EXPECT_EQ(net->parameters()[0].scalar_type(), at::kFloat);
}

TEST(ApexAmp, ScaledGradientsComeOutAsTheyWere) {
  const at::Tensor x = torch::randn({5, 4}), t = torch::randn({5, 4});
  const auto gradients = [&](bool scaled, bool delay) {
    auto net = net_with_batch_norm();
    auto steps = sgd(*net);
    auto [model, optimizer] = initialize(net, steps, "O0", {.loss_scale = 1024});
    for (const at::Tensor& batch : {x, t}) {  // accumulates
      const at::Tensor loss = model(batch).pow(2).mean();
      if (!scaled) {
        loss.backward();
        continue;
      }
      const auto scaled_loss = scale_loss(loss, optimizer, 0, delay && batch.is_same(x));
      EXPECT_EQ(scaled_loss->item<double>(), loss.item<double>() * 1024);
      scaled_loss.backward();
    }
    std::vector<at::Tensor> all;
    for (const at::Tensor& p : net->parameters()) all.push_back(p.grad().clone());
    EXPECT_TRUE(optimizer.step());
    return all;
  };
  const auto plain = gradients(false, false);
  EXPECT_TRUE(equal(plain, gradients(true, false)));
  EXPECT_TRUE(equal(plain, gradients(true, true)));
}

TEST(ApexAmp, O2StepsFloat32Masters) {
  auto net = net_with_batch_norm();
  const auto before = copies(net->parameters());
  auto steps = sgd(*net);
  auto [model, optimizer] = initialize(net, steps, "O2");
  EXPECT_EQ(net[0]->as<torch::nn::Linear>()->weight.scalar_type(), at::kHalf);
  EXPECT_EQ(net[1]->as<torch::nn::BatchNorm1d>()->weight.scalar_type(), at::kFloat);
  EXPECT_EQ(net[1]->as<torch::nn::BatchNorm1d>()->running_mean.scalar_type(), at::kFloat);
  EXPECT_TRUE(equal(before, master_params(optimizer)));  // all bits of the float32 model

  const at::Tensor x = torch::randn({8, 4}), y = torch::randn({8, 2});
  const double first = torch::mse_loss(model(x), y).item<double>();
  for (int step = 0; step < 30; ++step) {
    optimizer.zero_grad();
    const at::Tensor loss = torch::mse_loss(model(x), y);
    EXPECT_EQ(loss.scalar_type(), at::kFloat);
    scale_loss(loss, optimizer).backward();
    torch::nn::utils::clip_grad_norm_(master_params(optimizer), 5.0);
    optimizer.step();
  }
  EXPECT_LT(torch::mse_loss(model(x), y).item<double>(), 0.7 * first);
  const auto masters = master_params(optimizer);
  const auto parameters = net->parameters();
  for (std::size_t i = 0; i < masters.size(); ++i) {
    EXPECT_EQ(masters[i].scalar_type(), at::kFloat);
    EXPECT_TRUE(parameters[i].equal(masters[i].to(parameters[i].scalar_type())));
  }
}

TEST(ApexAmp, MomentumGoesOverToTheMasters) {
  const auto run = [](const char* level) {
    auto net = torch::nn::Linear(2, 2);
    net->weight.data().fill_(0.5);
    net->bias.data().fill_(0.5);
    auto steps = sgd(*net);
    net(torch::ones({1, 2})).sum().backward();
    steps.step();  // momentum, before initialize()
    auto [model, optimizer] = initialize(net, steps, level);
    optimizer.zero_grad();
    scale_loss(model(torch::ones({1, 2})).sum() * 0.25, optimizer)
        .backward();  // 65536 is infinite in float16
    optimizer.step();
    return copies(master_params(optimizer));
  };
  EXPECT_TRUE(equal(run("O0"), run("O2")));  // all numbers are halves and eighths
}

TEST(ApexAmp, OverflowSkipsTheStepAndHalvesTheScale) {
  torch::nn::Linear net(2, 2);
  auto steps = sgd(*net);
  auto [model, optimizer] = initialize(net, steps, "O1");
  Optimizer& again = optimizer;  // lambdas in macros do not capture bindings by name
  const auto step = [&, &opt = optimizer](double factor) {
    opt.zero_grad();
    scale_loss(net->weight.sum() * factor, opt).backward();
    return opt.step();
  };
  EXPECT_EQ(optimizer.loss_scale(), 65536);
  EXPECT_TRUE(step(1));
  const auto before = copies(net->parameters());
  EXPECT_FALSE(step(INF));
  EXPECT_TRUE(equal(before, net->parameters()));
  EXPECT_EQ(optimizer.loss_scale(), 32768);
  NamedTensors state = state_dict(optimizer);
  state[1].second = torch::tensor(1999);
  load_state_dict(optimizer, state);
  EXPECT_TRUE(step(1));
  EXPECT_EQ(optimizer.loss_scale(), 65536);
  EXPECT_EQ(state_dict(optimizer)[1].second.item<int>(), 0);
  EXPECT_THAT([&] { load_state_dict(again, {}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("no loss_scaler0")));
}

TEST(ApexAmp, EachLossHasItsScale) {
  torch::nn::Linear net(2, 2);
  auto steps = sgd(*net);
  auto [model, optimizer] = initialize(net, steps, "O1", {.num_losses = 2});
  Optimizer& again = optimizer;  // lambdas in macros do not capture bindings by name
  for (const int bad : {0, 1, -1}) {
    optimizer.zero_grad();
    for (const int id : {0, 1}) {
      scale_loss(net->weight.sum() * (id == bad ? INF : 0.25), optimizer, id).backward();
    }
    EXPECT_EQ(optimizer.step(), bad == -1);
  }
  EXPECT_EQ(optimizer.loss_scale(0), 32768);
  EXPECT_EQ(optimizer.loss_scale(1), 32768);
  EXPECT_TRUE(net->weight.grad().equal(torch::full({2, 2}, 0.5F)));
  EXPECT_THAT([&] { (void)scale_loss(net->weight.sum(), again, 2); },
              ThrowsMessage<InvalidArgument>(HasSubstr("loss_id is 2 of 2")));
}

TEST(ApexAmp, RefusesAStepWithScaledGradients) {
  torch::nn::Linear net(2, 2);
  auto steps = sgd(*net);
  auto [model, optimizer] = initialize(net, steps, "O1");
  Optimizer& again = optimizer;  // lambdas in macros do not capture bindings by name
  scale_loss(net->weight.sum(), optimizer, 0, /*delay_unscale=*/true).backward();
  EXPECT_THAT([&] { again.step(); }, ThrowsMessage<InvalidArgument>(HasSubstr("must not delay_unscale")));
  try {
    const auto scaled_loss = scale_loss(net->weight.sum(), optimizer);
    throw std::runtime_error("in backward");
  } catch (const std::runtime_error&) {
  }
  EXPECT_THROW(optimizer.step(), InvalidArgument);
  optimizer.zero_grad();
  scale_loss(net->weight.sum(), optimizer).backward();
  EXPECT_TRUE(optimizer.step());
}

}  // namespace
}  // namespace lockstep::compat::apex::amp

// What was changed in a model after it was wrapped, and optimisers of other tensors.
#include "lockstep/parallel/replicas/model_watch.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "testing/fake_ddp.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::fake_group;
using ::testing::HasSubstr;
using testing::one_bucket;
using ::testing::ThrowsMessage;

struct NetImpl : torch::nn::Module {
  NetImpl() {
    for (auto& parameter : body->parameters()) parameter.requires_grad_(false);
    register_module("body", body);
    register_module("head", head);
  }
  torch::Tensor forward(const torch::Tensor& x) { return head->forward(body(x)).sum(); }
  torch::nn::Linear body{2, 3};
  torch::nn::Sequential head{torch::nn::Linear(3, 1), torch::nn::ReLU()};
};
TORCH_MODULE(Net);

struct ModelWatchTest : ::testing::Test {
  Net net;
  std::shared_ptr<testing::FakeBackend> backend = fake_group();
  DistributedDataParallel<NetImpl> ddp{net, one_bucket(backend)};
  torch::Tensor x = torch::ones({4, 2});

  template <typename Matcher> void expect_refused(Matcher words) {
    EXPECT_THAT([&] { ddp.forward(x); }, ThrowsMessage<InvalidArgument>(words));
    EXPECT_THAT(backend->aborts, ElementsAre(words));  // the peers are told
  }
};

TEST_F(ModelWatchTest, FindsNothingInAModelThatIsTrained) {
  torch::optim::SGD optimizer(ddp.parameters(), 0.1);
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    ddp.forward(x).backward();
    optimizer.step();
  }
  EXPECT_EQ(ddp.stats().reductions, 3u);
}

TEST_F(ModelWatchTest, NamesAnUnfrozenParameter) {
  net->body->weight.requires_grad_(true);
  expect_refused(
      AllOf(HasSubstr("\"body.weight\" did not require a gradient"), HasSubstr("Wrap the model again")));
}

TEST_F(ModelWatchTest, LetsAnUnfrozenParameterTakePartInEvaluation) {
  net->body->weight.requires_grad_(true);
  const torch::NoGradGuard no_grad;
  EXPECT_EQ(ddp.forward(x).dim(), 0);
}

TEST_F(ModelWatchTest, NamesANewParameter) {
  net->head[0]->as<torch::nn::Linear>()->register_parameter("scale", torch::ones({1}));
  expect_refused(HasSubstr("\"head.0.scale\" was registered after the model was wrapped"));
}

TEST_F(ModelWatchTest, NamesAParameterOfANewLayer) {
  net->head->push_back(torch::nn::Linear(1, 1));
  expect_refused(HasSubstr("\"head.2.weight\" was registered after the model was wrapped, or replaces one"));
}

TEST_F(ModelWatchTest, NamesAReplacedLayer) {
  net->replace_module("head", torch::nn::Sequential(torch::nn::Linear(3, 1)));
  expect_refused(HasSubstr("\"head.0.weight\" was registered after the model was wrapped, or replaces one"));
}

TEST_F(ModelWatchTest, AllowsALayerWithoutTrainableParameters) {
  net->head->push_back(torch::nn::Tanh());
  net->register_module("frozen", torch::nn::Linear(1, 1))->weight.requires_grad_(false);
  net->named_parameters()["frozen.bias"].requires_grad_(false);
  for (int step = 0; step < 2; ++step) ddp.forward(x).backward();
  net->named_parameters()["frozen.bias"].requires_grad_(true);
  net->head->push_back(torch::nn::Tanh());
  expect_refused(HasSubstr("\"frozen.bias\" was registered"));
}

TEST_F(ModelWatchTest, ABackwardNamesAFrozenParameter) {
  net->head[0]->as<torch::nn::Linear>()->weight.requires_grad_(false);
  auto loss = ddp.forward(x);
  EXPECT_THAT([&] { loss.backward(); },
              ThrowsMessage<InvalidArgument>(AllOf(
                  HasSubstr("parameter \"head.0.weight\" got no gradient"),
                  HasSubstr("\"head.0.weight\" required one when the model was wrapped and does not now"))));
}

TEST_F(ModelWatchTest, NamesAParameterThatNoOptimiserSteps) {
  const auto parameters = ddp.parameters();
  torch::optim::SGD all(parameters, 0.1);
  ddp.check_optimizers(all);
  torch::optim::SGD weight({parameters[2]}, 0.1);
  torch::optim::Adam bias({parameters[3]});
  ddp.check_optimizers(weight, bias);  // what is frozen needs no optimiser
  EXPECT_THAT([&] { ddp.check_optimizers(weight); },
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("no optimiser steps parameter \"head.0.bias\""),
                                                   HasSubstr("of 1 tensors"))));
  torch::optim::SGD of_another(Net()->parameters(), 0.1);
  EXPECT_THAT([&] { ddp.check_optimizers(of_another); },
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("\"head.0.weight\""), HasSubstr("of 4 tensors"),
                                                   HasSubstr("0 are among the 4 parameters"))));
}

}  // namespace
}  // namespace lockstep

#include "lockstep/optim/optimizer.h"

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/sgd.h"
#include "testing/tensors.h"

namespace lockstep::optim {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Property;
using testing::random_values;

// The formulas of sgd.h and adam.h for one number, in float64.
struct Reference {
  double p = 0, buf = 0, m = 0, v = 0, x = 0;
  int t = 0;

  void step(const SGDOptions& o, double grad) {
    const double g = (o.maximize() ? -grad : grad) + o.weight_decay() * p;
    buf = t++ == 0 ? g : o.momentum() * buf + (1 - o.dampening()) * g;
    p -= o.lr() * (o.momentum() == 0 ? g : o.nesterov() ? g + o.momentum() * buf : buf);
  }
  template <typename Options> void adam(const Options& o, double g, double keep) {
    const auto [beta1, beta2] = o.betas();
    m = beta1 * m + (1 - beta1) * g;
    v = beta2 * v + (1 - beta2) * g * g;
    x = o.amsgrad() ? std::max(x, v) : v;
    ++t;
    p = keep * p -
        o.lr() / (1 - std::pow(beta1, t)) * m / (std::sqrt(x) / std::sqrt(1 - std::pow(beta2, t)) + o.eps());
  }
  void step(const AdamOptions& o, double grad) {
    adam(o, (o.maximize() ? -grad : grad) + o.weight_decay() * p, 1);
  }
  void step(const AdamWOptions& o, double grad) {
    adam(o, o.maximize() ? -grad : grad, 1 - o.lr() * o.weight_decay());
  }
};

template <typename T> struct OptimizerFor;
template <> struct OptimizerFor<SGDOptions> { using type = SGD; };
template <> struct OptimizerFor<AdamOptions> { using type = Adam; };
template <> struct OptimizerFor<AdamWOptions> { using type = AdamW; };

// Steps `parameter` ten times beside the reference, element by element.
template <typename Options>
double worst_difference(const Options& options, at::Tensor parameter, int steps = 10) {
  typename OptimizerFor<Options>::type optimizer(std::vector<at::Tensor>{parameter}, options);
  const at::Tensor start = torch::view_as_real(parameter.detach().to(at::kComplexDouble)).contiguous();
  std::vector<Reference> expected(static_cast<std::size_t>(start.numel()));
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i].p = start.data_ptr<double>()[i];
  for (int s = 0; s < steps; ++s) {
    const at::Tensor grad = random_values(parameter.sizes(), 100 + s, parameter.scalar_type());
    parameter.mutable_grad() = torch::empty_like(parameter).copy_(grad);
    optimizer.step();
    const at::Tensor parts = torch::view_as_real(grad.to(at::kComplexDouble)).contiguous();
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i].step(options, parts.data_ptr<double>()[i]);
  }
  const at::Tensor found = torch::view_as_real(parameter.detach().to(at::kComplexDouble)).contiguous();
  double worst = 0;
  for (std::size_t i = 0; i < expected.size(); i += parameter.is_complex() ? 1 : 2)
    worst = std::max(worst, std::abs(found.data_ptr<double>()[i] - expected[i].p));
  return worst;
}

std::vector<SGDOptions> sgd_options() {
  return {SGDOptions(0.1), SGDOptions(0.1).weight_decay(0.05).maximize(true), SGDOptions(0.1).momentum(0.9),
          SGDOptions(0.1).momentum(0.9).dampening(0.3).weight_decay(0.05),
          SGDOptions(0.1).momentum(0.9).nesterov(true).weight_decay(0.05)};
}
template <typename Options> std::vector<Options> adam_options() {
  return {Options(0.01), Options(0.01).weight_decay(0.2).amsgrad(true),
          Options(0.01).betas({0.3, 0.6}).eps(1e-3).maximize(true).weight_decay(0.1)};
}

template <typename Check> void for_all_options(const Check& check) {
  for (const auto& options : sgd_options()) check(options);
  for (const auto& options : adam_options<AdamOptions>()) check(options);
  for (const auto& options : adam_options<AdamWOptions>()) check(options);
}

TEST(Optimizer, IsItsFormulaInEveryDtypeAndLayout) {
  for_all_options([](const auto& options) {
    EXPECT_LT(worst_difference(options, random_values({7, 11}, 1, at::kDouble)), 1e-14);
    EXPECT_LT(worst_difference(options, random_values({7, 11}, 1, at::kFloat)), 2e-6);
    EXPECT_LT(worst_difference(options, random_values({7, 11}, 1, at::kHalf), 1), 2e-3);
    EXPECT_LT(worst_difference(options, random_values({7, 11}, 1, at::kBFloat16), 1), 1.6e-2);
    EXPECT_LT(worst_difference(options, random_values({7, 11}, 1, at::kComplexDouble)), 1e-14);
    EXPECT_LT(worst_difference(options, random_values({}, 1, at::kDouble)), 1e-14);
    EXPECT_EQ(worst_difference(options, random_values({0, 3}, 1, at::kDouble)), 0);
    EXPECT_LT(worst_difference(options, random_values({70001, 3}, 1, at::kDouble), 2),
              1e-14);  // several chunks
    EXPECT_LT(worst_difference(options, random_values({5, 9}, 1, at::kDouble).t()), 1e-14);
    EXPECT_LT(worst_difference(
                  options, random_values({2, 3, 4, 5}, 1, at::kDouble).to(at::MemoryFormat::ChannelsLast)),
              1e-14);
    EXPECT_LT(worst_difference(options, random_values({6, 8}, 1, at::kDouble).narrow(1, 1, 3)),
              1e-14);  // has gaps
  });
}

// Which the kernels do not take: they go by tensor operations.
TEST(Optimizer, TakesAGradientOfAnotherDtypeOrLayout) {
  at::Tensor usual = random_values({4, 6}, 1, at::kBFloat16);
  for (const bool transposed : {false, true}) {
    at::Tensor unusual = usual.clone();
    at::Tensor expected = usual.clone();
    for (auto* const p : {&unusual, &expected}) {
      AdamW optimizer(std::vector<at::Tensor>{*p}, AdamWOptions(0.1));
      for (int s = 0; s < 5; ++s) {
        const at::Tensor grad = random_values({4, 6}, s, at::kBFloat16);
        p->mutable_grad() = p == &expected ? grad
                            : transposed   ? grad.t().contiguous().t()
                                           : grad.to(at::kFloat);
        optimizer.step();
      }
    }
    EXPECT_TRUE(torch::allclose(unusual.to(at::kFloat), expected.to(at::kFloat), 0.02, 0.01));
  }
}

TEST(Optimizer, NumberOfThreadsDoesNotShowInTheBits) {
  const int before = at::get_num_threads();
  std::vector<at::Tensor> results;
  for (const int threads : {1, 2, 5}) {
    at::set_num_threads(threads);
    at::Tensor p = random_values({500, 1001}, 1, at::kFloat);
    AdamW optimizer(std::vector<at::Tensor>{p}, AdamWOptions(0.1));
    for (int s = 0; s < 3; ++s) {
      p.mutable_grad() = random_values(p.sizes(), s, at::kFloat);
      optimizer.step();
    }
    results.push_back(p);
  }
  at::set_num_threads(before);
  EXPECT_TRUE(torch::equal(results[0], results[1]));
  EXPECT_TRUE(torch::equal(results[0], results[2]));
}

TEST(Optimizer, ParametersWithoutGradientStay) {
  at::Tensor with = torch::ones({2});
  at::Tensor without = torch::ones({2});
  SGD optimizer(std::vector<at::Tensor>{without, with}, SGDOptions(0.5).momentum(0.9).weight_decay(0.1));
  with.mutable_grad() = torch::ones({2});
  optimizer.step();
  EXPECT_TRUE(torch::equal(without, torch::ones({2})));
  EXPECT_TRUE(torch::allclose(with, torch::full({2}, 1 - 0.5 * 1.1)));
  EXPECT_EQ(optimizer.state().size(), 1U);
}

TEST(Optimizer, ClosureRunsWithGradients) {
  const at::Tensor p = torch::ones({1}, at::requires_grad());
  SGD optimizer(std::vector<at::Tensor>{p}, SGDOptions(0.25));
  const at::Tensor loss = optimizer.step([&] {
    optimizer.zero_grad();
    at::Tensor l = (p * p).sum();
    l.backward();
    return l;
  });
  EXPECT_EQ(loss.item<double>(), 1);
  EXPECT_EQ(p.item<double>(), 0.5);
}

// As with libtorch's in-place operations.
TEST(Optimizer, AutogradNoticesAStepBetweenForwardAndBackward) {
  const at::Tensor p = torch::ones({3}, at::requires_grad());
  p.mutable_grad() = torch::ones({3});
  SGD optimizer(std::vector<at::Tensor>{p}, SGDOptions(0.1));
  const at::Tensor loss = (p * p).sum();
  optimizer.step();
  EXPECT_THROW(loss.backward(), c10::Error);
}

TEST(Optimizer, GroupsInheritWhatTheyDoNotSet) {
  const at::Tensor a = torch::zeros({1}), b = torch::zeros({1}), c = torch::zeros({1});
  std::vector<ParamGroup> groups;
  groups.emplace_back(std::vector<at::Tensor>{a},
                      std::make_unique<AdamWOptions>(AdamWOptions().weight_decay(0.5).maximize(true)));
  groups.emplace_back(std::vector<at::Tensor>{b});
  AdamW optimizer(groups, AdamWOptions(0.7).betas({0.1, 0.2}));
  optimizer.add_param_group(NamedTensors{{"c", c}});
  const auto options = [&](std::size_t g) {
    return static_cast<const AdamWOptions&>(optimizer.param_groups()[g].options());
  };
  EXPECT_EQ(options(0).lr(), 0.7);
  EXPECT_EQ(options(0).weight_decay(), 0.5);
  EXPECT_TRUE(options(0).maximize());
  EXPECT_EQ(options(0).betas(), std::make_tuple(0.1, 0.2));
  EXPECT_EQ(options(1).weight_decay(), 0.01);
  EXPECT_FALSE(options(2).maximize());
  optimizer.param_groups()[1].options().set_lr(0.25);
  EXPECT_EQ(options(1).lr(), 0.25);
  EXPECT_EQ(optimizer.param_groups()[1].options().get_lr(), 0.25);
}

// libtorch cannot know the options of other optimisers: it gives the group those of the optimiser.
TEST(Optimizer, AGroupAddedThroughLibtorchHasTheDefaults) {
  const at::Tensor a = torch::zeros({1}), b = torch::zeros({1});
  SGD optimizer(std::vector<at::Tensor>{a}, SGDOptions(0.7));
  static_cast<torch::optim::Optimizer&>(optimizer).add_param_group(ParamGroup(std::vector<at::Tensor>{b}));
  b.mutable_grad() = torch::ones({1});
  optimizer.step();
  EXPECT_FLOAT_EQ(b.item<float>(), -0.7F);
}

TEST(Optimizer, TakesLibtorchsOptions) {
  const at::Tensor p = torch::zeros({1});
  const AdamW optimizer(std::vector<at::Tensor>{p},
                        torch::optim::AdamWOptions(0.3).weight_decay(0.25).amsgrad(true));
  const auto& options = static_cast<const AdamWOptions&>(optimizer.param_groups()[0].options());
  EXPECT_EQ(options.lr(), 0.3);
  EXPECT_EQ(options.weight_decay(), 0.25);
  EXPECT_TRUE(options.amsgrad());
}

template <typename Call> void expect_refused(const Call& call, const ::testing::Matcher<std::string>& text) {
  try {
    call();
    ADD_FAILURE() << "was not refused";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), text);
  }
}

TEST(Optimizer, SparseGradientsAreRefusedByNameBeforeAnythingChanges) {
  const at::Tensor dense = torch::ones({4}), sparse = torch::ones({4});
  SGD named(NamedTensors{{"w", dense}, {"embedding.weight", sparse}}, SGDOptions(0.1));
  SGD unnamed(std::vector<at::Tensor>{dense, sparse}, SGDOptions(0.1));
  dense.mutable_grad() = torch::ones({4});
  sparse.mutable_grad() = torch::ones({4}).to_sparse();
  expect_refused([&] { named.step(); }, AllOf(HasSubstr("\"embedding.weight\""), HasSubstr("dense")));
  expect_refused([&] { unnamed.step(); }, HasSubstr("parameter 1 of group 0"));
  EXPECT_TRUE(torch::equal(dense, torch::ones({4})));
}

TEST(Optimizer, MistakesAreRefused) {
  const at::Tensor p = torch::ones({4}, at::requires_grad());
  const std::vector<at::Tensor> one = {p};
  expect_refused([&] { SGD(one, SGDOptions(-1)); }, HasSubstr("SGD: lr is -1"));
  expect_refused([&] { SGD(one, SGDOptions(NAN)); }, HasSubstr("lr is nan"));
  expect_refused([&] { SGD(one, SGDOptions(1).momentum(-1)); }, HasSubstr("momentum is -1"));
  expect_refused([&] { SGD(one, SGDOptions(1).nesterov(true)); }, HasSubstr("nesterov"));
  expect_refused([&] { Adam(one, AdamOptions(1).betas({1, 0})); }, HasSubstr("Adam: beta1 is 1"));
  expect_refused([&] { AdamW(one, AdamWOptions(1).betas({0, -0.1})); }, HasSubstr("AdamW: beta2"));
  expect_refused([&] { AdamW(one, AdamWOptions(1).eps(-1)); }, HasSubstr("eps"));
  expect_refused([&] { AdamW(one, AdamWOptions(1).weight_decay(-1)); }, HasSubstr("weight_decay"));
  expect_refused([&] { SGD(std::vector<at::Tensor>{p, p}, SGDOptions(1)); }, HasSubstr("twice"));
  expect_refused([&] { SGD(std::vector<at::Tensor>{p * 2}, SGDOptions(1)); }, HasSubstr("not a leaf"));
  expect_refused([&] { SGD(std::vector<at::Tensor>{torch::arange(3)}, SGDOptions(1)); }, HasSubstr("Long"));
  expect_refused([&] { SGD(std::vector<at::Tensor>{at::Tensor()}, SGDOptions(1)); }, HasSubstr("undefined"));
  SGD optimizer(one, SGDOptions(1));
  expect_refused([&] { optimizer.add_param_group(ParamGroup(one)); }, HasSubstr("parameter 0 of group 0"));
  expect_refused(
      [&] {
        optimizer.add_param_group(
            ParamGroup({torch::ones({1})}, std::make_unique<AdamWOptions>(AdamWOptions(1))));
      },
      HasSubstr("another optimiser"));
  EXPECT_EQ(optimizer.param_groups().size(), 1U);
}

// In a state dict one of them would take the other's place.
TEST(Optimizer, TwoParametersOfOneNameAreRefused) {
  const auto a = random_values({3}, 1), b = random_values({3}, 2), c = random_values({3}, 3);
  EXPECT_THAT(([&] {
                SGD(NamedTensors{{"w", a}, {"w", b}}, SGDOptions(0.1));
              }),
              ::testing::ThrowsMessage<InvalidArgument>(HasSubstr("two parameters have the name \"w\"")));
  SGD optimizer(NamedTensors{{"w", a}}, SGDOptions(0.1));
  EXPECT_THROW(optimizer.add_param_group(NamedTensors{{"v", b}, {"w", c}}), InvalidArgument);
  EXPECT_THROW(optimizer.add_param_group(NamedTensors{{"v", b}, {"x", a}}), InvalidArgument);
  optimizer.add_param_group(NamedTensors{{"v", b}});  // what was refused left no name behind
  EXPECT_EQ(optimizer.param_groups().size(), 2U);
  EXPECT_EQ(optimizer.state_dict().back().first.substr(0, 15), "param_groups.v.");
}

}  // namespace
}  // namespace lockstep::optim

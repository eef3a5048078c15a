#include "lockstep/parallel/pipeline/split_backward.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "testing/operator_calls.h"
#include "testing/tensors.h"

namespace lockstep::split_backward_test {
namespace {

using lockstep::testing::random_values;

// A function of an input, with its parameters.
struct Case {
  std::vector<at::Tensor> parameters;
  std::function<std::vector<at::Tensor>(const at::Tensor&)> function;
};

at::Tensor parameter(at::IntArrayRef sizes, std::uint64_t seed) {
  return random_values(sizes, seed).requires_grad_();
}

Case layers() {
  const at::Tensor w = parameter({5, 5}, 1), b = parameter({5}, 2), g = parameter({5}, 3),
                   c = parameter({5}, 4);
  return {{w, b, g, c}, [=](const at::Tensor& x) {
            const at::Tensor y = at::layer_norm(at::linear(x, w, b).tanh(), {5}, g, c);
            return std::vector<at::Tensor>{at::linear(y, w, b).relu()};  // the same weight again
          }};
}

Case convolution() {
  const at::Tensor w = parameter({3, 1, 3}, 1), b = parameter({3}, 2), v = parameter({2, 3, 2}, 3);
  return {{w, b, v}, [=](const at::Tensor& x) {
            return std::vector<at::Tensor>{at::conv1d(at::conv1d(x.unsqueeze(1), w, b).relu(), v)};
          }};
}

// A weight that is computed of parameters, a branch without the input, and an output that is the input.
Case branches() {
  const at::Tensor v = parameter({5, 5}, 1), scale = parameter({1}, 2), bias = parameter({5}, 3);
  return {{v, scale, bias}, [=](const at::Tensor& x) {
            const at::Tensor w = v * scale / v.norm();
            const at::Tensor y = at::matmul(x, w) + at::matmul(x, w).tanh();
            return std::vector<at::Tensor>{y + bias.exp(), x, (bias * scale).sum(), y.split(2, 1)[1]};
          }};
}

std::map<std::string, Case> cases() {
  return {{"layers", layers()}, {"convolution", convolution()}, {"branches", branches()}};
}

std::vector<at::Tensor> gradients_for(const std::vector<at::Tensor>& outputs) {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& output : outputs)
    gradients.push_back(random_values(output.sizes(), 50 + gradients.size()));
  return gradients;
}

std::vector<at::Tensor> take_gradients(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> gradients;
  for (at::Tensor parameter : parameters) {
    gradients.push_back(parameter.grad());
    parameter.mutable_grad() = at::Tensor();
  }
  return gradients;
}

TEST(SplitBackward, GivesTheGradientsOfAWholeBackward) {
  for (auto& [name, one] : cases()) {
    const at::Tensor x = random_values({4, 5}, 9).requires_grad_();
    const auto whole = one.function(x);
    torch::autograd::backward(whole, gradients_for(whole));
    const auto of_parameters = take_gradients(one.parameters);

    const at::Tensor again = x.detach().requires_grad_();
    const auto outputs = one.function(again);
    SplitBackward split(outputs, gradients_for(outputs), {again});
    EXPECT_TRUE(at::allclose(split.input_gradients().at(0), x.grad(), 1e-12, 1e-12)) << name;
    for (const at::Tensor& p : one.parameters) EXPECT_FALSE(p.grad().defined()) << name;
    EXPECT_FALSE(again.grad().defined());
    split.accumulate();
    const auto now = take_gradients(one.parameters);
    for (std::size_t i = 0; i < now.size(); ++i)
      EXPECT_TRUE(at::allclose(now[i], of_parameters[i], 1e-12, 1e-12)) << name << ' ' << i;
  }
}

// Three micro-batches of a row each, whose second halves run one after the other. The answer: autograd's own
// backward of the three.
TEST(SplitBackward, TakesTheWeightsOfEarlierOnes) {
  for (auto& [name, one] : cases()) {
    std::vector<SplitBackward> halves;
    for (std::uint64_t i = 0; i < 3; ++i) {
      const at::Tensor x = random_values({1, 5}, i).requires_grad_();
      const auto whole = one.function(x), outputs = one.function(x);
      torch::autograd::backward(whole, gradients_for(whole));
      halves.emplace_back(outputs, gradients_for(outputs), std::vector{x});
      if (i > 0) halves[i].take_weights_of(halves[i - 1]);
    }
    const auto expected = take_gradients(one.parameters);
    const auto calls = lockstep::testing::operator_calls([&] {
      for (SplitBackward& half : halves) half.accumulate();
    });
    if (name == "layers") EXPECT_EQ(calls.at("aten::cat"), 4);  // rows and gradients of two products
    const auto now = take_gradients(one.parameters);
    for (std::size_t i = 0; i < now.size(); ++i)
      EXPECT_TRUE(at::allclose(now[i], expected[i], 1e-12, 1e-12)) << name << ' ' << i;
  }
}

TEST(SplitBackward, AddsToGradientsThatAreThere) {
  const at::Tensor w = parameter({3}, 1), x = parameter({3}, 2);
  for (int times = 1; times <= 2; ++times) {
    SplitBackward({(w * x).sum()}, {at::ones({}, at::kDouble)}, {x}).accumulate();
    EXPECT_TRUE(w.grad().equal(x.detach() * times));
  }
}

TEST(SplitBackward, WithoutInputsIsOneBackwardLater) {
  const at::Tensor w = parameter({3}, 1), frozen = random_values({3}, 2);
  SplitBackward split({(w * frozen).sum()}, {at::ones({}, at::kDouble)}, {frozen});
  EXPECT_FALSE(split.input_gradients().at(0).defined());
  EXPECT_FALSE(w.grad().defined());
  split.accumulate();
  EXPECT_TRUE(w.grad().equal(frozen));
}

TEST(SplitBackward, LeavesTheGradientOfAnUnusedInputUndefined) {
  const at::Tensor w = parameter({3}, 1), x = parameter({3}, 2), unused = parameter({3}, 3);
  SplitBackward split({(w * x).sum(), at::Tensor()}, {at::ones({}, at::kDouble), at::Tensor()}, {unused, x});
  EXPECT_FALSE(split.input_gradients().at(0).defined());
  EXPECT_TRUE(split.input_gradients().at(1).equal(w.detach()));
}

// Counts what backward computes: y = x w, with the two products apart.
struct CountedProduct : torch::autograd::Function<CountedProduct> {
  static inline int of_input = 0, of_weight = 0;
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& w) {
    context->save_for_backward({x, w});
    return at::matmul(x, w);
  }
  static std::vector<at::Tensor> backward(torch::autograd::AutogradContext* context,
                                          const std::vector<at::Tensor>& gradients) {
    const auto saved = context->get_saved_variables();
    at::Tensor dx, dw;
    if (context->needs_input_grad(0)) {
      ++of_input;
      dx = at::matmul(gradients[0], saved[1].t());
    }
    if (context->needs_input_grad(1)) {
      ++of_weight;
      dw = at::matmul(saved[0].t(), gradients[0]);
    }
    return {dx, dw};
  }
};

TEST(SplitBackward, ComputesEachProductOnce) {
  const at::Tensor x = parameter({4, 4}, 1);
  const std::vector<at::Tensor> weights = {parameter({4, 4}, 2), parameter({4, 4}, 3), parameter({4, 4}, 4)};
  at::Tensor y = x;
  for (const at::Tensor& w : weights) y = CountedProduct::apply(y, w).tanh();
  CountedProduct::of_input = CountedProduct::of_weight = 0;
  SplitBackward split({y.sum()}, {at::ones({}, at::kDouble)}, {x});
  EXPECT_EQ(CountedProduct::of_input, 3);
  EXPECT_EQ(CountedProduct::of_weight, 0);
  split.accumulate();
  EXPECT_EQ(CountedProduct::of_input, 3);
  EXPECT_EQ(CountedProduct::of_weight, 3);
}

// Between the halves, what only the path needs is gone: here the result of tanh, which its own backward
// needs. The result of exp is an input of a product with a weight.
TEST(SplitBackward, FreesThePathBetweenTheHalves) {
  const at::Tensor x = parameter({4, 4}, 1), w = parameter({4, 4}, 2);
  std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> of_tanh, of_exp;
  std::optional<SplitBackward> split;
  {
    const at::Tensor squashed = at::matmul(x, w).tanh();
    const at::Tensor factor = squashed.exp();
    of_tanh = squashed.storage().getWeakStorageImpl();
    of_exp = factor.storage().getWeakStorageImpl();
    split.emplace(std::vector{at::matmul(factor, w).sum()}, std::vector{at::ones({}, at::kDouble)},
                  std::vector{x});
  }
  EXPECT_TRUE(of_tanh->expired());
  EXPECT_FALSE(of_exp->expired());
  split->accumulate();
  EXPECT_TRUE(of_exp->expired());
  EXPECT_TRUE(w.grad().defined());
}

// A chain longer than a recursion could walk.
TEST(SplitBackward, WalksDeepGraphs) {
  const at::Tensor x = parameter({1}, 1), w = parameter({1}, 2);
  at::Tensor y = x * w;
  for (int i = 0; i < 50'000; ++i) y = y + 1;
  SplitBackward split({y}, {at::ones({1}, at::kDouble)}, {x});
  split.accumulate();
  EXPECT_TRUE(w.grad().equal(x.detach()));
}

}  // namespace
}  // namespace lockstep::split_backward_test

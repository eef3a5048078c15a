#include "lockstep/autograd/weight_gradients.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/torch.h>

#include <functional>
#include <map>
#include <string>

#include "lockstep/autograd/saved_tensors_hooks.h"
#include "testing/operator_calls.h"
#include "testing/tensors.h"

namespace lockstep::weight_gradients_test {
namespace {

namespace autograd = torch::autograd;
using lockstep::testing::operator_calls;
using lockstep::testing::random_values;

at::Tensor parameter(at::IntArrayRef sizes, std::uint64_t seed) {
  return random_values(sizes, seed).requires_grad_();
}

autograd::Node& operation_of(const at::Tensor& output) {
  return *autograd::impl::gradient_edge(output).function;
}

// A function of parameters, and how many of its gradients are added in place.
struct Case {
  int in_place = 0;
  std::vector<at::Tensor> parameters;
  std::function<at::Tensor()> function;
};

std::map<std::string, Case> cases() {
  const at::Tensor w = parameter({3, 4}, 1), b = parameter({3}, 2), x = random_values({5, 4}, 3);
  const at::Tensor deep = random_values({2, 5, 4}, 4), a = parameter({4, 2}, 5), c = parameter({2, 3}, 6);
  const at::Tensor rows = random_values({4, 5}, 7), square = parameter({4, 4}, 8);
  const at::Tensor turned = random_values({4, 3}, 9).t().requires_grad_();
  const at::Tensor wave = at::complex(random_values({4, 3}, 9), random_values({4, 3}, 8)).requires_grad_();
  return {
      {"a linear layer", {1, {w, b}, [=] { return at::linear(x, w, b); }}},
      {"of several dimensions", {1, {w, b}, [=] { return at::linear(deep, w, b); }}},
      {"without bias", {1, {w}, [=] { return at::linear(x, w); }}},
      {"of several dimensions without bias", {1, {w}, [=] { return at::linear(deep, w); }}},
      {"a weight as it is", {1, {square}, [=] { return at::mm(x, square); }}},
      {"a weight as it is, with bias", {2, {a, c, b}, [=] { return at::addmm(b, x.mm(a), c); }}},
      {"two layers with the same weight", {2, {square}, [=] { return x.mm(square).tanh().mm(square); }}},
      {"a weight and its transpose", {2, {square}, [=] { return x.mm(square).exp().mm(square.t()); }}},
      {"rows that are not contiguous", {1, {w, b}, [=] { return at::linear(rows.t(), w, b); }}},
      {"a product of two parameters", {2, {a, c}, [=] { return x.mm(a.mm(c)).tanh().mm(c.t()); }}},
      {"a weight that is computed", {0, {w}, [=] { return at::linear(x, w * 2); }}},
      {"a product times a number", {0, {w, b}, [=] { return at::addmm(b, x, w.t(), 1, 2); }}},
      {"a bias times a number", {1, {w, b}, [=] { return at::addmm(b, x, w.t(), 2, 1); }}},
      {"a frozen weight", {0, {b}, [=] { return at::linear(x, w.detach(), b); }}},
      {"a weight that is not contiguous", {0, {turned}, [=] { return at::linear(x, turned); }}},
      {"complex numbers", {0, {wave}, [=] { return at::real(x.to(at::kComplexDouble).mm(wave)); }}},
  };
}

std::vector<at::Tensor> take_gradients(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> gradients;
  for (at::Tensor parameter : parameters) {
    gradients.push_back(parameter.grad());
    parameter.mutable_grad() = at::Tensor();
  }
  return gradients;
}

// The second time adds to what the first left, in the same memory.
TEST(WeightGradients, AreAutogradsInEveryForm) {
  for (const auto& [name, one] : cases()) {
    one.function().square().sum().backward();
    const std::vector<at::Tensor> expected = take_gradients(one.parameters);
    std::vector<at::Tensor> first;
    for (const int times : {1, 2}) {
      const at::Tensor loss = one.function().square().sum();
      add_weight_gradients_in_place({loss});
      const auto calls = operator_calls([&] { loss.backward(); });
      if (times == 2)
        EXPECT_EQ(calls.contains("aten::addmm_") ? calls.at("aten::addmm_") : 0, one.in_place) << name;
      for (std::size_t i = 0; i < expected.size(); ++i) {
        const at::Tensor& grad = one.parameters[i].grad();
        EXPECT_TRUE(at::allclose(grad, expected[i] * times, 1e-12, 1e-12)) << name << ' ' << i;
        EXPECT_EQ(grad.strides(), one.parameters[i].strides()) << name << ' ' << i;
        if (times == 1) first.push_back(grad);
        EXPECT_TRUE(grad.is_same(first[i])) << name << ' ' << i;
      }
    }
    take_gradients(one.parameters);
  }
}

// What a product does not see: the gradient of another dtype than the weight's, one with a graph of its own.
TEST(WeightGradients, LeaveAnUnusualGradToAutograd) {
  const at::Tensor w = parameter({3, 4}, 1), x = random_values({5, 4}, 2);
  w.mutable_grad() = at::ones({3, 4}, at::kDouble).requires_grad_();
  EXPECT_EQ(add_weight_gradient_in_place(operation_of(at::linear(x, w))), nullptr);
  w.mutable_grad() = at::ones({4, 3}, at::kDouble).t();
  EXPECT_EQ(add_weight_gradient_in_place(operation_of(at::linear(x, w))), nullptr);
  w.mutable_grad() = at::ones({3, 4}, at::kDouble);
  EXPECT_NE(add_weight_gradient_in_place(operation_of(at::linear(x, w))), nullptr);
}

struct CountingHook : autograd::PostAccumulateGradHook {
  explicit CountingHook(int& calls) : count(calls) {}
  void operator()(const autograd::Variable& /*tensor*/) override { ++count; }
  int& count;
};

// By who watches: returns the output of a layer that it watches, and counts its calls.
using Watch = std::function<at::Tensor(const at::Tensor& x, const at::Tensor& w, int& calls)>;

std::map<std::string, Watch> watches() {
  return {
      {"a hook of the weight",
       [](const at::Tensor& x, const at::Tensor& w, int& calls) {
         w.register_hook([&calls](const at::Tensor&) { ++calls; });
         return at::linear(x, w);
       }},
      {"a hook behind the accumulation",
       [](const at::Tensor& x, const at::Tensor& w, int& calls) {
         autograd::impl::set_post_acc_grad_hooks(w, std::make_unique<CountingHook>(calls));
         return at::linear(x, w);
       }},
      {"a hook of the accumulator, as a reducer's",
       [](const at::Tensor& x, const at::Tensor& w, int& calls) {
         const at::Tensor y = at::linear(x, w);
         const auto count = [&calls](const autograd::variable_list& outputs, const autograd::variable_list&) {
           ++calls;
           return outputs;
         };
         autograd::impl::gradient_edge(w).function->add_post_hook(
             std::make_unique<autograd::utils::LambdaPostHook>(count));
         return y;
       }},
      {"a hook of the output",
       [](const at::Tensor& x, const at::Tensor& w, int& calls) {
         const at::Tensor y = at::linear(x, w);
         y.register_hook([&calls](const at::Tensor&) { ++calls; });
         return y;
       }},
      {"a hook of the transposed weight",
       [](const at::Tensor& x, const at::Tensor& w, int& calls) {
         const at::Tensor turned = w.t();
         turned.register_hook([&calls](const at::Tensor&) { ++calls; });
         return x.mm(turned);
       }},
      {"saved-tensor hooks",
       [](const at::Tensor& x, const at::Tensor& w, int& calls) {
         const auto guard = saved_tensors_hooks([&calls](const at::Tensor& tensor) {
           return [&calls, tensor] {
             ++calls;
             return tensor;
           };
         });
         return at::linear(x, w);
       }},
  };
}

TEST(WeightGradients, LeaveWhatIsWatchedToAutograd) {
  for (const auto& [name, watch] : watches()) {
    const at::Tensor w = parameter({3, 4}, 1), x = random_values({5, 4}, 2);
    int calls = 0;
    const at::Tensor y = watch(x, w, calls);
    EXPECT_EQ(add_weight_gradient_in_place(operation_of(y)), nullptr) << name;
    y.sum().backward();
    EXPECT_EQ(calls, 1) << name;
    EXPECT_TRUE(at::allclose(w.grad(), at::ones({3, 5}, at::kDouble).mm(x))) << name;
  }
}

TEST(WeightGradients, SeeWhatIsChangedBetweenForwardAndBackward) {
  const at::Tensor w = parameter({3, 4}, 1), x = random_values({5, 4}, 2);
  const at::Tensor y = at::linear(x, w);
  x.add_(1);
  EXPECT_THROW(add_weight_gradients_in_place({y}), c10::Error);
}

// The backwards of several layers' outputs, whose rows are taken together.
struct Backwards {
  std::vector<std::shared_ptr<WeightGradient>> gradients;
  std::vector<at::Tensor> of_outputs;
  at::Tensor expected;  // the sum of the transposed gradients times the inputs

  Backwards(const at::Tensor& w, const std::vector<std::int64_t>& rows) {
    expected = at::zeros_like(w);
    for (const std::int64_t count : rows) {
      const at::Tensor x = random_values({count, w.size(1)}, gradients.size());
      gradients.push_back(add_weight_gradient_in_place(operation_of(at::linear(x, w))));
      of_outputs.push_back(random_values({count, w.size(0)}, 10 + gradients.size()));
      expected += of_outputs.back().t().mm(x);
    }
  }
  bool take(std::size_t later, std::size_t earlier) {
    return gradients[later]->take(*gradients[earlier], of_outputs[earlier]);
  }
  testing::OperatorCalls add() {
    return operator_calls([&] {
      for (std::size_t i = 0; i < gradients.size(); ++i) gradients[i]->add(of_outputs[i]);
    });
  }
};

TEST(WeightGradients, OfFewRowsAreOneProduct) {
  const at::Tensor w = parameter({12, 12}, 1);
  w.mutable_grad() = at::zeros({12, 12}, at::kDouble);
  Backwards three(w, {3, 2, 4});
  EXPECT_TRUE(three.take(1, 0));
  EXPECT_TRUE(three.take(2, 1));
  EXPECT_FALSE(three.take(2, 1));  // it has nothing any more
  EXPECT_EQ(three.add().at("aten::addmm_"), 1);
  EXPECT_TRUE(at::allclose(w.grad(), three.expected, 1e-12, 1e-12));
  three.add();  // each adds once
  EXPECT_TRUE(at::allclose(w.grad(), three.expected, 1e-12, 1e-12));
}

// Of a weight of 12 x 12, 144 elements are written less, and 24 a row more: up to 6 rows.
TEST(WeightGradients, OfManyRowsStayApart) {
  const at::Tensor w = parameter({12, 12}, 1), other = parameter({12, 12}, 2);
  w.mutable_grad() = at::zeros({12, 12}, at::kDouble);
  Backwards pairs(w, {3, 3, 4});
  EXPECT_FALSE(pairs.take(2, 1));
  EXPECT_TRUE(pairs.take(1, 0));
  EXPECT_EQ(pairs.add().at("aten::addmm_"), 2);
  EXPECT_TRUE(at::allclose(w.grad(), pairs.expected, 1e-12, 1e-12));

  Backwards one(w, {1}), another(other, {1});
  EXPECT_FALSE(one.gradients[0]->take(*another.gradients[0], another.of_outputs[0]));
}

}  // namespace
}  // namespace lockstep::weight_gradients_test

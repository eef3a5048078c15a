// LARS and LAMB beside their formulas, written out for whole tensors in float64.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/serialize.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/optim/lamb.h"
#include "lockstep/optim/lars.h"
#include "testing/tensors.h"

namespace lockstep::optim {
namespace {

using ::testing::HasSubstr;
using testing::random_values;
using Numbers = std::vector<double>;

double norm(const Numbers& x) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  return std::sqrt(sum);
}

struct WholeReference {
  Numbers p;
  bool one_dimension;
  Numbers m = Numbers(p.size(), 0), v = Numbers(p.size(), 0);
  int t = 0;

  void step(const LARSOptions& o, const Numbers& grad, double /*global*/) {
    const bool excluded = one_dimension && o.exclude_1d();
    const double decay = excluded ? 0 : o.weight_decay();
    Numbers d = grad;
    for (std::size_t i = 0; i < p.size(); ++i) d[i] += decay * p[i];
    double ratio = 1;
    if (!excluded && o.adapt() && norm(p) > 0 && norm(o.joint_norm() ? d : grad) > 0) {
      const double below = o.joint_norm() ? norm(d) : norm(grad) + decay * norm(p);
      ratio = o.trust_coefficient() * norm(p) / (below + o.eps());
      if (o.clip()) ratio = std::min(ratio / o.lr(), 1.0);
    }
    const double inside = o.lr_in_momentum() ? o.lr() * ratio : ratio;
    const double outside = o.lr_in_momentum() ? 1 : o.lr();
    for (std::size_t i = 0; i < p.size(); ++i) {
      m[i] = o.momentum() * m[i] + inside * d[i];
      p[i] -= outside * (o.nesterov() ? inside * d[i] + o.momentum() * m[i] : m[i]);
    }
  }

  void step(const LAMBOptions& o, const Numbers& grad, double global) {
    const bool excluded = one_dimension && o.exclude_1d();
    const double decay = excluded ? 0 : o.weight_decay();
    const double factor = global > o.max_grad_norm() ? o.max_grad_norm() / global : 1;
    const auto [beta1, beta2] = o.betas();
    ++t;
    Numbers u(p.size());
    for (std::size_t i = 0; i < p.size(); ++i) {
      const double g = factor * grad[i];
      m[i] = beta1 * m[i] + (o.grad_averaging() ? 1 - beta1 : 1) * g;
      v[i] = beta2 * v[i] + (1 - beta2) * g * g;
      const double mean = o.bias_correction() ? m[i] / (1 - std::pow(beta1, t)) : m[i];
      const double square = o.bias_correction() ? v[i] / (1 - std::pow(beta2, t)) : v[i];
      u[i] = mean / (std::sqrt(square) + o.eps()) + decay * p[i];
    }
    double ratio = 1;
    const bool adapted = o.adapt() && !excluded && (o.adapt_without_decay() || o.weight_decay() > 0);
    if (adapted && norm(p) > 0 && norm(u) > 0)
      ratio = std::min(std::max(std::min(norm(p), o.max_weight_norm()) / norm(u), o.min_trust_ratio()),
                       o.max_trust_ratio());
    for (std::size_t i = 0; i < p.size(); ++i) p[i] -= o.lr() * ratio * u[i];
  }
};

template <typename T> struct OptimizerFor;
template <> struct OptimizerFor<LARSOptions> { using type = LARS; };
template <> struct OptimizerFor<LAMBOptions> { using type = LAMB; };

Numbers numbers(const at::Tensor& tensor) {
  const at::Tensor flat =
      torch::view_as_real(tensor.detach().to(at::kComplexDouble)).contiguous().reshape({-1});
  Numbers all(flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel());
  if (tensor.is_complex()) return all;
  Numbers real;
  for (std::size_t i = 0; i < all.size(); i += 2) real.push_back(all[i]);
  return real;
}

// Of several parameters, two of them of one dimension, and one that the kernels do not take.
template <typename Options> double worst_difference(const Options& options, at::ScalarType dtype, int steps) {
  std::vector<at::Tensor> ps;
  for (const at::Tensor& p :
       {random_values({6, 9}, 1), random_values({13}, 2), random_values({300, 300}, 3),
        torch::zeros({4, 4}, at::kDouble), random_values({}, 4), random_values({6, 8}, 5)})
    ps.push_back(p.to(dtype));
  ps.back() = ps.back().narrow(1, 1, 3);
  ps.push_back(random_values({3, 4}, 6).to(at::kComplexDouble));
  std::vector<WholeReference> references;
  for (const at::Tensor& p : ps) references.push_back({numbers(p), p.dim() <= 1});
  typename OptimizerFor<Options>::type optimizer(ps, options);
  for (int s = 0; s < steps; ++s) {
    double global = 0;
    for (std::size_t i = 0; i < ps.size(); ++i) {
      ps[i].mutable_grad() =
          random_values(ps[i].sizes(), 10 * s + static_cast<int>(i)).to(ps[i].scalar_type());
      if (i == 0 && s == 2) ps[i].mutable_grad().zero_();  // a norm of zero
      global = std::hypot(global, norm(numbers(ps[i].grad())));
    }
    optimizer.step();
    for (std::size_t i = 0; i < ps.size(); ++i) references[i].step(options, numbers(ps[i].grad()), global);
  }
  double worst = 0;
  for (std::size_t i = 0; i < ps.size(); ++i) {
    const Numbers found = numbers(ps[i]);
    for (std::size_t j = 0; j < found.size(); ++j)
      worst = std::max(worst, std::abs(found[j] - references[i].p[j]));
  }
  return worst;
}

template <typename Options> void expect_formula(const std::vector<Options>& all) {
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_LT(worst_difference(all[i], at::kDouble, 4), 1e-12) << i;
    EXPECT_LT(worst_difference(all[i], at::kFloat, 4), 1e-4) << i;
    EXPECT_LT(worst_difference(all[i], at::kBFloat16, 1), 3e-2) << i;
  }
}

LARSOptions lars() { return LARSOptions(2).weight_decay(0.01).trust_coefficient(0.02); }

TEST(Lars, IsItsFormulaInEveryVariant) {
  expect_formula<LARSOptions>({lars(), lars().exclude_1d(false), lars().nesterov(true), lars().momentum(0),
                               lars().joint_norm(true).eps(1e-3), lars().lr_in_momentum(false),
                               lars().lr_in_momentum(false).nesterov(true),
                               lars().clip(true).eps(1e-8).lr_in_momentum(false).exclude_1d(false),
                               lars().adapt(false).lr(0.1)});
}

LAMBOptions lamb() { return LAMBOptions(0.05).weight_decay(0.1); }

TEST(Lamb, IsItsFormulaInEveryVariant) {
  expect_formula<LAMBOptions>(
      {lamb(), lamb().exclude_1d(false), lamb().bias_correction(false).max_weight_norm(3),
       lamb().min_trust_ratio(0.9).max_trust_ratio(0.95), lamb().max_grad_norm(1),
       lamb().grad_averaging(false), lamb().weight_decay(0).adapt_without_decay(false),
       lamb().weight_decay(0), lamb().adapt(false)});
}

// One step of a tensor with one value: |p| = 2 |w|, |g| = 2 |x|, and everything can be said in closed form.
TEST(Lars, OneStepInClosedForm) {
  const double w = 3, x = 0.5, lr = 0.1, decay = 0.25, eta = 0.02;
  const at::Tensor p = torch::full({2, 2}, w, at::kDouble);
  LARS optimizer(std::vector<at::Tensor>{p}, LARSOptions(lr).weight_decay(decay).trust_coefficient(eta));
  p.mutable_grad() = torch::full({2, 2}, x, at::kDouble);
  optimizer.step();
  const double ratio = eta * 2 * w / (2 * x + decay * 2 * w);
  EXPECT_NEAR(p[0][0].item<double>(), w - lr * ratio * (x + decay * w), 1e-15);
}

TEST(Lamb, OneStepInClosedForm) {
  const double w = 3, x = -0.5, lr = 0.1, decay = 0.25, eps = 1e-6;
  const at::Tensor p = torch::full({2, 2}, w, at::kDouble);
  LAMB optimizer(std::vector<at::Tensor>{p}, LAMBOptions(lr).weight_decay(decay).eps(eps));
  p.mutable_grad() = torch::full({2, 2}, x, at::kDouble);
  optimizer.step();
  const double u = x / (std::abs(x) + eps) + decay * w;  // its size does not matter: ratio * u is |w| or -|w|
  EXPECT_NEAR(p[1][1].item<double>(), w - lr * w * (u > 0 ? 1 : -1), 1e-14);
}

TEST(LargeBatch, StateIsSavedAndLoaded) {
  const auto trained = [](auto& optimizer, const std::vector<at::Tensor>& ps, int first, int last) {
    for (int s = first; s < last; ++s) {
      ps[0].mutable_grad() = random_values(ps[0].sizes(), s);
      optimizer.step();
    }
  };
  const auto check = [&]<typename Options>(const Options& options) {
    using Kind = typename OptimizerFor<Options>::type;
    const std::vector<at::Tensor> whole = {random_values({4, 5}, 1)};
    Kind expected(whole, options);
    trained(expected, whole, 0, 6);
    for (const bool archive : {true, false}) {
      const std::vector<at::Tensor> ps = {random_values({4, 5}, 1)};
      Kind before(ps, options);
      trained(before, ps, 0, 3);
      Kind after(ps, Options(77));
      if (archive) {
        std::stringstream file;
        torch::save(before, file);
        torch::load(after, file);
      } else {
        after.load_state_dict(before.state_dict());
      }
      trained(after, ps, 3, 6);
      EXPECT_TRUE(torch::equal(ps[0], whole[0]));
    }
  };
  check(lars().clip(true));
  check(lamb().max_trust_ratio(3));
}

TEST(LargeBatch, MistakesAreRefused) {
  const std::vector<at::Tensor> one = {torch::ones({2})};
  const auto refused = [](const auto& call) {
    try {
      call();
    } catch (const InvalidArgument& error) {
      return std::string(error.what());
    }
    return std::string("taken");
  };
  EXPECT_THAT(refused([&] { LARS(one, LARSOptions(1).trust_coefficient(-1)); }),
              HasSubstr("LARS: trust_coefficient"));
  EXPECT_THAT(refused([&] { LARS(one, LARSOptions(1).momentum(0).nesterov(true)); }), HasSubstr("nesterov"));
  EXPECT_THAT(refused([&] { LAMB(one, LAMBOptions(1).betas({0, 1})); }), HasSubstr("LAMB: beta2"));
  EXPECT_THAT(refused([&] { LAMB(one, LAMBOptions(1).min_trust_ratio(2).max_trust_ratio(1)); }),
              HasSubstr("above max_trust_ratio"));
  EXPECT_THAT(refused([&] { LAMB(one, LAMBOptions(1).max_grad_norm(NAN)); }), HasSubstr("max_grad_norm"));
}

}  // namespace
}  // namespace lockstep::optim

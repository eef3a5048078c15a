// Clipping beside libtorch's in the same process, and Python's.
#include "lockstep/optim/clip_grad.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/tensor/state_dict.h"
#include "testing/python.h"
#include "testing/temp_folder.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
constexpr double INF = std::numeric_limits<double>::infinity();

std::vector<at::Tensor> parameters(at::ScalarType dtype, double scale = 1) {
  torch::manual_seed(4);
  std::vector<at::Tensor> all;
  for (const std::vector<std::int64_t>& shape :
       {std::vector<std::int64_t>{3, 5}, {7}, {}, {0, 2}, {300, 411}}) {
    all.push_back(torch::zeros(shape, dtype));
    all.back().mutable_grad() = (torch::randn(shape, at::kDouble) * scale).to(dtype);
  }
  all[0].mutable_grad() = all[0].grad().t().contiguous().t();  // an unusual layout
  all.push_back(torch::ones({2}, dtype));                      // without gradient
  return all;
}

TEST(ClipGradNorm, IsLibtorchs) {
  for (const double norm_type : {1.0, 2.0, 3.5, INF}) {
    for (const double max_norm : {0.0, 0.5, 1e9}) {
      for (const auto dtype : {at::kDouble, at::kFloat}) {
        const auto ours = parameters(dtype), theirs = parameters(dtype);
        const double limit = dtype == at::kDouble ? 1e-12 : 1e-5;
        // libtorch has no maximum of an empty gradient
        std::vector<at::Tensor> given = theirs;
        given.erase(given.begin() + 3);
        const double expected = torch::nn::utils::clip_grad_norm_(given, max_norm, norm_type);
        EXPECT_NEAR(clip_grad_norm_(ours, max_norm, norm_type), expected, limit * expected);
        for (std::size_t i = 0; i < 5; ++i)
          EXPECT_TRUE(torch::allclose(ours[i].grad(), theirs[i].grad(), limit, limit))
              << norm_type << ' ' << i;
      }
    }
  }
}

TEST(ClipGradNorm, HalfPrecisionAndComplexGradients) {
  for (const auto dtype : {at::kHalf, at::kBFloat16, at::kComplexFloat}) {
    const auto ps = parameters(dtype);
    double square = 0;
    for (std::size_t i = 0; i < 5; ++i)
      square += ps[i].grad().to(at::kComplexDouble).abs().pow(2).sum().item<double>();
    EXPECT_NEAR(clip_grad_norm_(ps, 1.0), std::sqrt(square), 1e-9 * std::sqrt(square));
    EXPECT_NEAR(clip_grad_norm_(ps, INF), 1, 1e-2);
  }
}

TEST(ClipGradNorm, LargeValuesDoNotOverflow) {
  const auto ps = parameters(at::kFloat, 1e30);  // their squares are beyond float32
  const double norm = clip_grad_norm_(ps, 1.0);
  EXPECT_TRUE(std::isfinite(norm));
  EXPECT_NEAR(clip_grad_norm_(ps, 1.0), 1, 1e-5);
}

TEST(ClipGradNorm, NotFinite) {
  for (const double bad : {INF, std::nan("")}) {
    const auto ps = parameters(at::kFloat);
    ps[1].mutable_grad()[2] = bad;
    const at::Tensor before = ps[0].grad().clone();
    try {
      clip_grad_norm_(ps, 1.0, 2.0, /*error_if_nonfinite=*/true);
      ADD_FAILURE();
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr("gradient 1, of shape [7]"));
    }
    EXPECT_TRUE(torch::equal(ps[0].grad(), before));
    EXPECT_FALSE(std::isfinite(clip_grad_norm_(ps, 1.0)));
    EXPECT_EQ(ps[0].grad().isnan().any().item<bool>(), std::isnan(bad));  // infinity divides all others to 0
    EXPECT_TRUE(ps[1].grad()[2].isnan().item<bool>());
  }
}

TEST(ClipGradNorm, WithoutGradients) {
  EXPECT_EQ(clip_grad_norm_({}, 1.0), 0);
  EXPECT_EQ(clip_grad_norm_({torch::ones({2})}, 1.0), 0);
}

TEST(ClipGradValue, IsLibtorchs) {
  const auto ours = parameters(at::kFloat), theirs = parameters(at::kFloat);
  ours[1].mutable_grad()[0] = theirs[1].mutable_grad()[0] = std::nan("");
  clip_grad_value_(ours, 0.5);
  torch::nn::utils::clip_grad_value_(theirs, 0.5);
  for (std::size_t i = 0; i < 5; ++i)
    EXPECT_TRUE(torch::allclose(ours[i].grad(), theirs[i].grad(), 0, 0, true));
}

TEST(ClipGrad, IsPythons) {
  const testing::TempFolder folder;
  const auto ps = parameters(at::kDouble);
  NamedTensors grads;
  for (std::size_t i = 0; i < 5; ++i) grads.emplace_back(std::to_string(i), ps[i].grad());
  save_state_dict(grads, folder / "grads.safetensors");
  const std::string printed = testing::run_python(R"(
import sys, torch
from safetensors.torch import load_file, save_file
grads = load_file(sys.argv[1] + "/grads.safetensors")
results = {}
for norm_type in (1.0, 2.0, float("inf")):
    ps = [torch.zeros_like(grads[i]) for i in sorted(grads) if grads[i].numel() > 0]
    for p, i in zip(ps, (i for i in sorted(grads) if grads[i].numel() > 0)):
        p.grad = grads[i].clone()
    print(repr(torch.nn.utils.clip_grad_norm_(ps, 0.7, norm_type).item()), repr(ps[0].grad[1, 2].item()))
)",
                                                  {folder.path()});
  std::istringstream lines(printed);
  for (const double norm_type : {1.0, 2.0, INF}) {
    const auto own = parameters(at::kDouble);
    double norm = 0, element = 0;
    ASSERT_TRUE(lines >> norm >> element);
    EXPECT_NEAR(clip_grad_norm_(own, 0.7, norm_type), norm, 1e-12 * norm);
    EXPECT_NEAR(own[0].grad()[1][2].item<double>(), element, 1e-12 * std::abs(element));
  }
}

TEST(ClipGrad, MistakesAreRefused) {
  const auto ps = parameters(at::kFloat);
  EXPECT_THROW(clip_grad_norm_(ps, -1), InvalidArgument);
  EXPECT_THROW(clip_grad_norm_(ps, std::nan("")), InvalidArgument);
  EXPECT_THROW(clip_grad_norm_(ps, 1, 0.5), InvalidArgument);
  EXPECT_THROW(clip_grad_value_(ps, -1), InvalidArgument);
  ps[1].mutable_grad() = torch::ones({7}).to_sparse();
  EXPECT_THROW(clip_grad_norm_(ps, 1), InvalidArgument);
  EXPECT_THROW(clip_grad_value_(ps, 1), InvalidArgument);
}

}  // namespace
}  // namespace lockstep

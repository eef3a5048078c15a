// Whether two tensors are equal up to rounding.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace lockstep::testing {

// The largest difference is at most `tolerance` times the largest expected value.
inline void expect_near(const at::Tensor& actual, const at::Tensor& expected, double tolerance,
                        const char* what) {
  ASSERT_TRUE(actual.defined()) << what;
  ASSERT_EQ(actual.sizes(), expected.sizes()) << what;
  if (expected.numel() == 0) return;
  const at::Tensor a = actual.detach().to(at::kDouble), e = expected.detach().to(at::kDouble);
  const double scale = std::max(1e-300, e.abs().max().item<double>());
  EXPECT_LE((a - e).abs().max().item<double>() / scale, tolerance) << what;
}

}  // namespace lockstep::testing

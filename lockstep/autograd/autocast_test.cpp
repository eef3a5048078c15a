#include "lockstep/autograd/autocast.h"

#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <sstream>
#include <thread>

#include "lockstep/base/error.h"
#include "testing/python.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

at::ScalarType dtype_of_mm() { return at::mm(at::ones({2, 2}), at::ones({2, 2})).scalar_type(); }

TEST(Autocast, LowersWhatItShouldAndEndsWithItsScope) {
  EXPECT_EQ(dtype_of_mm(), at::kFloat);
  {
    const auto mixed = autocast(at::kCPU, at::kBFloat16);
    EXPECT_EQ(dtype_of_mm(), at::kBFloat16);
    {
      const auto full = autocast(at::kCPU, {}, /*enabled=*/false);
      EXPECT_EQ(dtype_of_mm(), at::kFloat);
      const auto half = autocast(at::kCPU, at::kHalf);
      EXPECT_EQ(dtype_of_mm(), at::kHalf);
    }
    EXPECT_EQ(dtype_of_mm(), at::kBFloat16);
    at::ScalarType elsewhere = at::kBool;
    std::thread([&] { elsewhere = dtype_of_mm(); }).join();
    EXPECT_EQ(elsewhere, at::kFloat);
  }
  EXPECT_EQ(dtype_of_mm(), at::kFloat);
  const auto by_default = autocast(at::kCPU);
  EXPECT_EQ(dtype_of_mm(), at::kBFloat16);
}

TEST(Autocast, EndsWithAnException) {
  try {
    const auto mixed = autocast(at::kCPU, at::kHalf, true, /*cache_enabled=*/false);
    throw std::runtime_error("out");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(dtype_of_mm(), at::kFloat);
  EXPECT_TRUE(at::autocast::is_autocast_cache_enabled());
  EXPECT_EQ(at::autocast::get_autocast_dtype(at::kCPU), at::kBFloat16);
}

// What the operations of a small net give on CPU, in both 16-bit types, is what Python gives bit for bit;
// gradients too.
TEST(Autocast, ComputesAsPythonDoes) {
  const char* const script = R"(
import torch
for dtype in (torch.bfloat16, torch.float16):
    w = (torch.arange(12.).reshape(3, 4) / 7 - 0.8).requires_grad_()
    x = torch.arange(8.).reshape(2, 4) / 3
    with torch.autocast("cpu", dtype):
        h = torch.nn.functional.linear(x, w)
        s = torch.softmax(h, 1)
        loss = torch.nn.functional.mse_loss(torch.tanh(h), torch.ones(2, 3)) + (w.t() @ w).sum()
    loss.backward()
    print(h.dtype, s.dtype, loss.dtype, w.grad.dtype, "%.9g" % loss.item(), "%.9g" % w.grad.sum().item())
)";
  std::ostringstream ours;
  for (const auto& [dtype, name] :
       {std::pair(at::kBFloat16, "torch.bfloat16"), {at::kHalf, "torch.float16"}}) {
    const at::Tensor w = (torch::arange(12.0F).reshape({3, 4}) / 7 - 0.8).set_requires_grad(true);
    const at::Tensor x = torch::arange(8.0F).reshape({2, 4}) / 3;
    at::Tensor h, s, loss;
    {
      const auto mixed = autocast(at::kCPU, dtype);
      h = at::linear(x, w);
      s = at::softmax(h, 1);
      loss = at::mse_loss(at::tanh(h), at::ones({2, 3})) + at::matmul(w.t(), w).sum();
    }
    loss.backward();
    const auto text = [&, name = name](const at::Tensor& t) {
      return t.scalar_type() == at::kFloat ? std::string("torch.float32") : std::string(name);
    };
    char numbers[64];
    std::snprintf(numbers, sizeof numbers, "%.9g %.9g", loss.item<double>(), w.grad().sum().item<double>());
    ours << text(h) << " " << text(s) << " " << text(loss) << " " << text(w.grad()) << " " << numbers << "\n";
  }
  EXPECT_EQ(ours.str(), testing::run_python(script));
}

TEST(Autocast, CastsAParameterOncePerRegion) {
  const at::Tensor w = at::ones({4, 4}).set_requires_grad(true);
  const auto cast_of = [&] {  // the lowered parameter, as the product saved it
    return at::mm(w, at::ones({4, 4})).grad_fn()->next_edge(0).function.get();
  };
  const auto mixed = autocast(at::kCPU);
  const auto* const first = cast_of();
  EXPECT_EQ(first, cast_of());
  const auto uncached = autocast(at::kCPU, {}, true, /*cache_enabled=*/false);
  EXPECT_NE(first, cast_of());
}

TEST(Autocast, ItsStateCanBeTakenElsewhere) {
  std::optional<AutocastState> inside;
  {
    const auto mixed = autocast(at::kCPU, at::kHalf);
    inside = AutocastState::of_this_thread();
  }
  std::thread([&] {
    {
      const AutocastState::Guard guard(*inside);
      EXPECT_EQ(dtype_of_mm(), at::kHalf);
    }
    EXPECT_EQ(dtype_of_mm(), at::kFloat);
  }).join();
  const AutocastState outside = AutocastState::of_this_thread();
  const auto mixed = autocast(at::kCPU);
  const AutocastState::Guard guard(outside);
  EXPECT_EQ(dtype_of_mm(), at::kFloat);
}

TEST(Autocast, RefusesWhatItCannotDo) {
  EXPECT_THAT([] { const auto none = autocast(at::kCPU, at::kDouble); },
              ThrowsMessage<InvalidArgument>(HasSubstr("the dtype is Double")));
  EXPECT_THAT([] { const auto none = autocast(at::kMeta, at::kHalf); },
              ThrowsMessage<InvalidArgument>(HasSubstr("\"meta\"")));
  EXPECT_EQ(dtype_of_mm(), at::kFloat);
  const auto off = autocast(at::kCPU, at::kDouble, /*enabled=*/false);  // as in Python
  EXPECT_EQ(dtype_of_mm(), at::kFloat);
}

}  // namespace
}  // namespace lockstep

#include "lockstep/parallel/gradients/hooks/plain_hooks.h"

#include <c10/core/GradMode.h>

#include <cmath>

#include "lockstep/parallel/gradients/hooks/bucket_numbers.h"
#include "lockstep/tensor/collectives.h"

namespace lockstep {
namespace {

// Half the smallest number above zero.
double underflow(at::ScalarType dtype) {
  switch (c10::toRealValueType(dtype)) {
    case at::kDouble: return 0x1p-1074;
    case at::kFloat: return 0x1p-150;
    case at::kHalf: return 0x1p-25;
    default: return 0x1p-134;
  }
}

// Error of a sum over a balanced tree and one division. 16-bit types are summed in float32 and rounded once
// more.
double roundings(at::ScalarType dtype, int ranks) {
  const double levels = std::ceil(std::log2(ranks)) + 1;
  return is_16_bits(dtype) ? levels * 0x1p-24 + unit_roundoff(dtype) : levels * unit_roundoff(dtype);
}

}  // namespace

HookStep AllReduceHook::run(const GradBucket& bucket) {
  return all_reduce(bucket.buffer(), ReduceOp::AVG, bucket.group(), /*async_op=*/true);
}

HookErrorBound AllReduceHook::error_bound(at::ScalarType dtype, int ranks) const {
  return {.of_largest = 1.01 * roundings(dtype, ranks), .absolute = 2 * underflow(dtype)};
}

HookStep CompressHook::run(const GradBucket& bucket) {
  const at::Tensor wide = bucket.reals();
  if (is_16_bits(wide.scalar_type())) {
    return all_reduce(wide, ReduceOp::AVG, bucket.group(), /*async_op=*/true);
  }
  const c10::NoGradGuard no_grad;
  const at::Tensor narrow =
      compressed_.of(bucket.index(), wide.numel(), wide.options().dtype(type_), bucket.group());
  narrow.copy_(wide);
  return {all_reduce(narrow, ReduceOp::AVG, bucket.group(), /*async_op=*/true), [wide, narrow] {
            const c10::NoGradGuard unrecorded;
            wide.copy_(narrow);
            return HookStep();
          }};
}

HookErrorBound CompressHook::error_bound(at::ScalarType dtype, int ranks) const {
  if (is_16_bits(dtype)) return AllReduceHook().error_bound(dtype, ranks);
  const double first = unit_roundoff(type_);  // rounding error of the compression
  return {.of_largest = first + (1 + first) * 1.01 * roundings(type_, ranks),
          .absolute = 3 * underflow(type_)};
}

// The result is the rank's own value. The mean contains 1 / `ranks` of that.
HookErrorBound NoopHook::error_bound(at::ScalarType, int ranks) const {
  return {.of_largest = 2.0 * (ranks - 1) / ranks};
}

}  // namespace lockstep

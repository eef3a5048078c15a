#include "lockstep/parallel/gradients/hooks/bucket_numbers.h"

#include <ATen/ops/zeros.h>

#include "lockstep/tensor/collectives.h"

namespace lockstep {

at::Tensor wide_reals(const GradBucket& bucket) {
  const at::Tensor reals = bucket.reals();
  return is_16_bits(reals.scalar_type()) ? reals.to(at::kFloat) : reals;
}

at::Tensor part_of(const at::Tensor& reals, const GradBucketPart& part) {
  const std::int64_t each = part.parameter.is_complex() ? 2 : 1;
  return reals.narrow(0, part.offset * each, part.count * each);
}

bool is_16_bits(at::ScalarType dtype) { return c10::elementSize(c10::toRealValueType(dtype)) == 2; }

double unit_roundoff(at::ScalarType dtype) {
  switch (c10::toRealValueType(dtype)) {
    case at::kDouble: return 0x1p-53;
    case at::kFloat: return 0x1p-24;
    case at::kHalf: return 0x1p-11;
    default: return 0x1p-8;  // bfloat16
  }
}

at::Tensor communicated_zeros(std::int64_t count, const at::TensorOptions& of, const ProcessGroup& group) {
  if (of.device().is_cpu()) return shared_empty({count}, c10::typeMetaToScalarType(of.dtype()), group);
  return at::zeros({count}, of);
}

at::Tensor HookMemory::of(std::size_t bucket, std::int64_t count, const at::TensorOptions& of,
                          const ProcessGroup& group) {
  at::Tensor& tensor = tensors_[bucket];
  if (!tensor.defined() || tensor.numel() != count || tensor.dtype() != of.dtype() ||
      tensor.device() != of.device()) {
    tensor = communicated_zeros(count, of, group);
  }
  return tensor;
}

}  // namespace lockstep

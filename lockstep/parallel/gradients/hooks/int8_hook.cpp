#include "lockstep/parallel/gradients/hooks/int8_hook.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include "lockstep/tensor/collectives.h"

namespace lockstep {
namespace {

struct Messages {
  at::Tensor to_average, received;  // this rank's gradient; all ranks' parts of this rank's slice
  at::Tensor averaged, gathered;    // the average of this rank's slice; the averages of all slices
};

std::span<std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

template <typename Real> std::span<Real> numbers_of(const at::Tensor& tensor) {
  return {static_cast<Real*>(tensor.data_ptr()), static_cast<std::size_t>(tensor.numel())};
}

// Does not write to the gaps between gradients, because a NaN would stay there.
template <typename Real>
void take(const GradBucket& bucket, const Int8Slices<Real>& slices, const at::Tensor& all) {
  const at::Tensor reals = bucket.reals();
  for (const GradBucketPart& part : bucket.parts()) {
    const at::Tensor into = part_of(reals, part);
    const bool direct = into.is_cpu() && into.scalar_type() == c10::CppTypeToScalarType<Real>::value;
    const at::Tensor numbers =
        direct ? into : at::empty({into.numel()}, c10::CppTypeToScalarType<Real>::value);
    const auto first = static_cast<std::size_t>(into.storage_offset() - reals.storage_offset());
    slices.read(bytes_of(all), first, numbers_of<Real>(numbers));
    if (!direct) into.copy_(numbers);
  }
}

template <typename Real>
HookStep begin(const GradBucket& bucket, const Int8Slices<Real>& slices, const Messages& messages) {
  const at::Tensor numbers = bucket.reals().to(at::kCPU, c10::CppTypeToScalarType<Real>::value).contiguous();
  slices.quantise(numbers_of<Real>(numbers), bytes_of(messages.to_average));
  const auto finish = [=] {
    const c10::NoGradGuard unrecorded;
    take(bucket, slices, messages.gathered);
    return HookStep();
  };
  const auto average = [=]() -> HookStep {
    slices.average(bytes_of(messages.received), bytes_of(messages.averaged));
    return {all_gather_into_tensor(messages.gathered, messages.averaged, bucket.group(), /*async_op=*/true),
            finish};
  };
  return {
      all_to_all_single(messages.received, messages.to_average, {}, {}, bucket.group(), /*async_op=*/true),
      average};
}

}  // namespace

HookErrorBound Int8Hook::error_bound(at::ScalarType dtype, int) const {
  const double half_step = 0.5 / Int8Slices<float>::STEPS;
  const double roundings = 4 * unit_roundoff(is_16_bits(dtype) ? at::kFloat : dtype) +
                           (is_16_bits(dtype) ? 1.01 * unit_roundoff(dtype) : 0);
  return {.of_largest = half_step + (1 + half_step) * half_step + roundings, .absolute = 1e-37};
}

template <typename Real> HookStep Int8Hook::run_as(const GradBucket& bucket) {
  const c10::NoGradGuard no_grad;
  const ProcessGroup& group = bucket.group();
  const Int8Slices<Real> slices(static_cast<std::size_t>(bucket.reals().numel()),
                                static_cast<std::size_t>(group.size()));
  const auto bytes = static_cast<std::int64_t>(slices.bytes());
  const auto of = [&](HookMemory& memory, std::int64_t count) {
    return memory.of(bucket.index(), count * bytes, at::TensorOptions(at::kByte), group);
  };
  return begin(bucket, slices,
               {.to_average = of(to_average_, group.size()),
                .received = of(received_, group.size()),
                .averaged = of(averaged_, 1),
                .gathered = of(gathered_, group.size())});
}

HookStep Int8Hook::run(const GradBucket& bucket) {
  return bucket.reals().scalar_type() == at::kDouble ? run_as<double>(bucket) : run_as<float>(bucket);
}

}  // namespace lockstep

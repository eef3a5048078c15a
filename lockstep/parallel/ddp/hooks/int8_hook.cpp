#include "lockstep/parallel/ddp/hooks/int8_hook.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "lockstep/tensor/collectives.h"

namespace lockstep {
namespace {

constexpr double STEPS = 127;

std::int64_t divided_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// How a bucket falls into slices, one per rank, of chunks.
struct Slices {
  std::int64_t ranks, chunk, rows;  // `rows` chunks in each slice
  at::ScalarType type;              // of scales and arithmetic

  Slices(std::int64_t elements, std::int64_t of_ranks, at::ScalarType wide)
      : ranks(of_ranks),
        chunk(std::clamp(divided_up(elements, of_ranks), std::int64_t{1}, Int8Hook::CHUNK)),
        rows(std::max(divided_up(elements, of_ranks * chunk), std::int64_t{1})),
        type(wide) {}
  std::int64_t elements() const { return ranks * rows * chunk; }
  // Of one slice: all scales, then all integers.
  std::int64_t scale_bytes() const { return rows * static_cast<std::int64_t>(c10::elementSize(type)); }
  std::int64_t bytes() const { return divided_up(scale_bytes() + rows * chunk, 8) * 8; }

  // `values` has k slices of rows x chunk, `message` room for as many.
  void quantise(const at::Tensor& values, const at::Tensor& message) const {
    const at::Tensor scales = values.abs().amax(-1, /*keepdim=*/true).div_(STEPS);
    const at::Tensor steps = values / at::where(scales == 0, at::ones_like(scales), scales);
    // Not finite: the scale says so; the integers must only be some.
    steps.round_().nan_to_num_(0, STEPS, -STEPS).clamp_(-STEPS, STEPS);
    const at::Tensor slices = message.view({-1, bytes()});
    for (std::int64_t i = 0; i < slices.size(0); ++i) {
      slices[i].narrow(0, 0, scale_bytes()).view(type).copy_(scales[i].view({-1}));
      slices[i].narrow(0, scale_bytes(), rows * chunk).view(at::kChar).copy_(steps[i].view({-1}));
    }
  }

  // One slice: rows x chunk.
  at::Tensor values_of(const at::Tensor& slice) const {
    const at::Tensor scales = slice.narrow(0, 0, scale_bytes()).view(type).view({rows, 1});
    return slice.narrow(0, scale_bytes(), rows * chunk)
        .view(at::kChar)
        .view({rows, chunk})
        .to(type)
        .mul_(scales);
  }
};

}  // namespace

HookErrorBound Int8Hook::error_bound(at::ScalarType dtype, int) const {
  const double half_step = 0.5 / STEPS;
  const double roundings = 4 * unit_roundoff(is_16_bits(dtype) ? at::kFloat : dtype) +
                           (is_16_bits(dtype) ? 1.01 * unit_roundoff(dtype) : 0);
  return {.of_largest = half_step + (1 + half_step) * half_step + roundings, .absolute = 1e-37};
}

HookStep Int8Hook::run(const GradBucket& bucket) {
  const c10::NoGradGuard no_grad;
  const at::Tensor reals = bucket.reals();
  const ProcessGroup& group = bucket.group();
  const std::size_t index = bucket.index();
  const at::ScalarType type = is_16_bits(reals.scalar_type()) ? at::kFloat : reals.scalar_type();
  const Slices slices(reals.numel(), group.size(), type);
  const at::Tensor values = at::zeros({slices.elements()}, type);
  values.narrow(0, 0, reals.numel()).copy_(reals);
  const at::Tensor out = to_average_.of(index, slices.bytes() * group.size(), at::kByte, group);
  const at::Tensor in = received_.of(index, slices.bytes() * group.size(), at::kByte, group);
  const at::Tensor mean = averaged_.of(index, slices.bytes(), at::kByte, group);
  const at::Tensor all = gathered_.of(index, slices.bytes() * group.size(), at::kByte, group);
  slices.quantise(values.view({slices.ranks, slices.rows, slices.chunk}), out);

  const auto take = [=] {
    const c10::NoGradGuard unrecorded;
    for (std::int64_t r = 0; r < slices.ranks; ++r) {
      values.view({slices.ranks, -1})[r].copy_(
          slices.values_of(all.narrow(0, r * slices.bytes(), slices.bytes())).view({-1}));
    }
    // Not into the gaps between gradients: what is not a number would stay there.
    for (const GradBucketPart& part : bucket.parts()) part_of(reals, part).copy_(part_of(values, part));
    return HookStep();
  };
  const auto average = [=]() -> HookStep {
    const c10::NoGradGuard unrecorded;
    const at::Tensor sum = slices.values_of(in.narrow(0, 0, slices.bytes()));
    for (std::int64_t r = 1; r < slices.ranks; ++r) {
      sum.add_(slices.values_of(in.narrow(0, r * slices.bytes(), slices.bytes())));
    }
    slices.quantise(sum.div_(slices.ranks).view({1, slices.rows, slices.chunk}), mean);
    return {all_gather_into_tensor(all, mean, bucket.group(), /*async_op=*/true), take};
  };
  return {all_to_all_single(in, out, {}, {}, group, /*async_op=*/true), average};
}

}  // namespace lockstep

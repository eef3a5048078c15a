#include "lockstep/parallel/gradients/hooks/top_k_hook.h"

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/parallel/gradients/hooks/largest_elements.h"
#include "lockstep/tensor/collectives.h"

namespace lockstep {
namespace {

// Layout of a bucket's message: `count` values, then their places.
struct Layout {
  std::int64_t count;
  at::ScalarType values, places;

  static std::int64_t aligned(std::int64_t bytes) { return (bytes + 7) / 8 * 8; }
  std::int64_t size_of(at::ScalarType type) const {
    return static_cast<std::int64_t>(c10::elementSize(type)) * count;
  }
  std::int64_t bytes() const { return aligned(size_of(values)) + aligned(size_of(places)); }
  at::Tensor values_in(const at::Tensor& message) const {
    return message.narrow(0, 0, size_of(values)).view(values);
  }
  at::Tensor places_in(const at::Tensor& message) const {
    return message.narrow(0, aligned(size_of(values)), size_of(places)).view(places);
  }
};

}  // namespace

TopKHook::TopKHook(const TopKOptions& options) : options_(options) {
  if (options.ratio > 0 && options.ratio <= 1) return;
  throw InvalidArgument(
      lockstep::str("topk: ratio is ", options.ratio, "; it must be above 0 and at most 1"));
}

std::string TopKHook::describe() const {
  return lockstep::str("topk(ratio ", options_.ratio, ", use_error_feedback ", options_.use_error_feedback,
                       ")");
}

HookErrorBound TopKHook::error_bound(at::ScalarType dtype, int) const {
  return {.of_norm = std::sqrt(1 - options_.ratio) + 4 * unit_roundoff(dtype)};
}

HookStep TopKHook::run(const GradBucket& bucket) {
  const c10::NoGradGuard no_grad;
  const at::Tensor reals = bucket.reals();
  const at::Tensor own = wide_reals(bucket).clone();  // this rank's contribution
  if (options_.use_error_feedback) {
    for (const GradBucketPart& part : bucket.parts()) errors_.add_to(part.name, part_of(own, part));
  }
  const std::int64_t elements = own.numel();
  const Layout layout = {
      .count = static_cast<std::int64_t>(std::ceil(options_.ratio * static_cast<double>(elements))),
      .values = reals.scalar_type(),
      .places = elements <= std::int64_t{1} << 31 ? at::kInt : at::kLong};
  const ProcessGroup& group = bucket.group();
  const auto bytes = reals.options().dtype(at::kByte);
  const at::Tensor message = messages_.of(bucket.index(), layout.bytes(), bytes, group);
  const at::Tensor all = gathered_.of(bucket.index(), layout.bytes() * group.size(), bytes, group);

  const at::Tensor places = largest_places(own, layout.count);
  const at::Tensor values = layout.values_in(message);
  layout.places_in(message).copy_(places);
  values.copy_(own.index_select(0, places));
  if (options_.use_error_feedback) {
    own.index_add_(0, places, values.to(own.scalar_type()), /*alpha=*/-1);
    own.nan_to_num_(0, 0, 0);
    for (const GradBucketPart& part : bucket.parts()) errors_.keep(part.name, part_of(own, part));
  }
  const auto combine = [all, layout, reals, type = own.scalar_type(), ranks = group.size()] {
    const c10::NoGradGuard unrecorded;
    const at::Tensor sum =
        type == reals.scalar_type() ? reals.zero_() : at::zeros(reals.sizes(), reals.options().dtype(type));
    for (std::int64_t r = 0; r < ranks; ++r) {
      const at::Tensor theirs = all.narrow(0, r * layout.bytes(), layout.bytes());
      sum.index_add_(0, layout.places_in(theirs), layout.values_in(theirs).to(type));
    }
    sum.div_(ranks);
    if (!sum.is_same(reals)) reals.copy_(sum);
    return HookStep();
  };
  return {all_gather_into_tensor(all, message, group, /*async_op=*/true), combine};
}

CommHook::State TopKHook::state_dict() const {
  State state("tensor");
  errors_.save(state);
  return state;
}

void TopKHook::load_state_dict(const State& state) {
  ErrorFeedback errors;
  for (const auto& item : state) {
    if (errors.load(item.key(), item.value())) continue;
    throw InvalidArgument(
        lockstep::str("topk: the state to load has \"", printable(item.key()), "\": it is of another hook"));
  }
  errors_ = std::move(errors);
}

}  // namespace lockstep

#include "lockstep/parallel/gradients/gradient_slot.h"

#include <ATen/ops/as_strided.h>
#include <c10/core/GradMode.h>

#include <utility>

#include "lockstep/base/str.h"
#include "lockstep/parallel/gradients/gradient_fit.h"
#include "lockstep/tensor/lent_places.h"

namespace lockstep {
namespace {

// The strides that AccumulateGrad gives a gradient: the parameter's own if they cover memory without gaps or
// overlap, else those of a contiguous tensor.
std::vector<std::int64_t> gradient_strides(const at::Tensor& parameter) {
  if (parameter.is_non_overlapping_and_dense()) return parameter.strides().vec();
  std::vector<std::int64_t> strides(static_cast<std::size_t>(parameter.dim()));
  std::int64_t step = 1;
  for (std::size_t i = strides.size(); i-- > 0;) {
    strides[i] = step;
    step *= std::max<std::int64_t>(1, parameter.sizes()[i]);
  }
  return strides;
}

}  // namespace

at::Tensor gradient_alias(const at::Tensor& flat, at::IntArrayRef sizes, at::IntArrayRef strides,
                          std::size_t offset) {
  const c10::NoGradGuard no_grad;
  return flat.as_strided(sizes, strides, static_cast<std::int64_t>(offset)).detach();
}

GradientSlot::GradientSlot(std::string name, at::Tensor parameter, const at::Tensor& flat, std::size_t offset)
    : name_(std::move(name)),
      parameter_(std::move(parameter)),
      offset_(offset),
      flat_(flat),
      alias_(gradient_alias(flat, parameter_.sizes(), gradient_strides(parameter_), offset)) {}

bool GradientSlot::is_in_place() const {
  const at::Tensor& grad = parameter_.grad();
  return grad.defined() && grad.layout() == c10::kStrided &&
         grad.const_data_ptr() == alias_.const_data_ptr() && grad.strides() == alias_.strides();
}

bool GradientSlot::is_installed() const {
  return is_in_place() && parameter_.grad().storage().is_alias_of(alias_.storage());
}

bool GradientSlot::fits(const at::Tensor& tensor) const { return are_alike(tensor, alias_); }

std::optional<std::string> GradientSlot::change() const {
  if (!parameter_.is_leaf()) return "is the result of an operation now, and was a leaf when it was wrapped";
  if (fits(parameter_)) return std::nullopt;
  return lockstep::str("was ", alias_.scalar_type(), " ", alias_.sizes(), " on ", alias_.device(),
                       " when it was wrapped and is ", parameter_.scalar_type(), " ", parameter_.sizes(),
                       " on ", parameter_.device(), " now; wrap the model again after changing it");
}

std::optional<std::string> GradientSlot::refusal() const { return refusal_of(parameter_.grad(), alias_); }

void GradientSlot::offer(const void* who, std::size_t skip) const {
  if (!alias_.device().is_cpu()) return;  // only the CPU allocator takes offers
  if (is_apart_ || has_gradient() || is_lent(alias_.const_data_ptr())) return;
  offer_place(who, alias_.data_ptr(), alias_.nbytes(), flat_, skip);
}

void GradientSlot::end_offer() const { withdraw_place(alias_.const_data_ptr()); }

// A gradient with another holder is copied, so that the holder keeps the values of this rank. (The holder of
// a view of it sees the average, as after any change of .grad in place.)
bool GradientSlot::is_occupied() const {
  if (!is_lent(alias_.const_data_ptr()) || is_installed()) return false;
  return !is_in_place() || parameter_.grad().use_count() > 1;
}

void GradientSlot::move_to(const at::Tensor& flat, std::size_t offset) {
  const c10::NoGradGuard no_grad;
  const bool was_installed = is_installed();
  // The parameter's strides may have changed, but those of the bucket must be the same on every rank.
  const at::Tensor moved = gradient_alias(flat, alias_.sizes(), alias_.strides(), offset);
  moved.copy_(alias_);
  flat_ = flat;
  offset_ = offset;
  alias_ = moved;
  if (was_installed) parameter_.mutable_grad() = alias_;
}

void GradientSlot::keep_apart(bool on) {
  const c10::NoGradGuard no_grad;
  is_apart_ = on;
  if (on && is_in_place()) parameter_.mutable_grad() = alias_.clone();
}

std::size_t GradientSlot::take_gradient(bool stays) {
  nothing_new_ = false;
  kept_.reset();
  stays_ = stays || is_apart_;
  if (is_installed()) return 0;
  const c10::NoGradGuard no_grad;
  const bool is_there = is_in_place();
  if (!is_there) alias_.copy_(parameter_.grad());
  if (!stays_) parameter_.mutable_grad() = alias_;
  return is_there ? 0 : alias_.nbytes();
}

void GradientSlot::contribute_nothing_new(bool stays) {
  const c10::NoGradGuard no_grad;
  nothing_new_ = true;
  stays_ = stays || is_apart_;
  if (!has_gradient()) {
    alias_.zero_();
  } else if (is_installed()) {
    kept_ = alias_.clone();
  } else {
    alias_.copy_(parameter_.grad());
  }
}

void GradientSlot::give_average() {
  if (stays_ && has_gradient()) {
    if (!is_installed()) parameter_.grad().copy_(alias_);
  } else {
    parameter_.mutable_grad() = is_apart_ ? alias_.clone() : alias_;
  }
}

void GradientSlot::settle(bool used_by_any_rank) {
  const c10::NoGradGuard no_grad;
  if (nothing_new_ ? used_by_any_rank : stays_) {
    give_average();
  } else if (nothing_new_ && kept_.defined()) {
    alias_.copy_(kept_);
  }
  stays_ = false;
  nothing_new_ = false;
  kept_.reset();
}

}  // namespace lockstep

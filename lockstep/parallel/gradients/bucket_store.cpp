#include "lockstep/parallel/gradients/bucket_store.h"

#include <c10/core/GradMode.h>

#include <utility>

#include "lockstep/base/str.h"
#include "lockstep/parallel/gradients/hooks/bucket_numbers.h"
#include "lockstep/tensor/collectives.h"

namespace lockstep {

std::vector<BucketParameter> sizes_of(const NamedTensors& parameters) {
  std::vector<BucketParameter> sizes;
  for (const auto& [name, tensor] : parameters) {
    sizes.push_back(
        {.count = static_cast<std::size_t>(tensor.numel()), .dtype = dtype_of(tensor.scalar_type())});
  }
  return sizes;
}

BucketStore::BucketStore(const NamedTensors& parameters, ProcessGroup group, BucketPlan plan)
    : group_(std::move(group)), plan_(std::move(plan)), bucket_of_(parameters.size()), holders_(parameters) {
  std::vector<std::size_t> offsets(parameters.size());
  for (const BucketSpec& bucket : plan_) {
    for (const BucketEntry& entry : bucket.entries) {
      bucket_of_[entry.parameter] = flats_.size();
      offsets[entry.parameter] = entry.offset;
    }
    flats_.push_back(make_flat(bucket, parameters[bucket.entries.front().parameter].second));
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    slots_.emplace_back(parameters[i].first, parameters[i].second, flats_[bucket_of_[i]], offsets[i]);
  }
}

at::Tensor BucketStore::make_flat(const BucketSpec& bucket, const at::Tensor& like) const {
  return communicated_zeros(static_cast<std::int64_t>(bucket.elements), like.options(), group_);
}

std::size_t BucketStore::bytes() const {
  std::size_t bytes = 0;
  for (const at::Tensor& flat : flats_) bytes += flat.nbytes();
  return bytes;
}

void BucketStore::begin_pass(const ParameterClaims& claims) {
  std::vector<const GradientSlot*> slots;
  for (GradientSlot& slot : slots_) {
    slot.keep_apart(claims.is_shared(slots.size()));
    slots.push_back(&slot);
  }
  holders_.begin_pass();
  for (const std::size_t bucket : kept_buckets(flats_, slots, bucket_of_)) move(bucket);
  places_.begin_pass(slots);
}

void BucketStore::end_pass() { places_.end_pass(); }

void BucketStore::take(std::size_t parameter, const at::Tensor& incoming) {
  GradientSlot& slot = slots_[parameter];
  if (!slot.is_apart()) places_.note(parameter, slot);
  make_room(parameter);
  const std::size_t copied = slot.take_gradient(is_held(parameter, incoming));
  if (copied > 0) places_.missed(parameter);
  bytes_copied_ += copied;
}

void BucketStore::leave_out(std::size_t parameter) {
  make_room(parameter);
  slots_[parameter].contribute_nothing_new(is_held(parameter, {}));
}

// If another tensor was made in a place meant for a gradient, it keeps that memory, and the whole bucket
// moves.
void BucketStore::make_room(std::size_t parameter) {
  const GradientSlot& slot = slots_[parameter];
  slot.end_offer();
  if (!slot.is_occupied()) return;
  places_.mistaken();
  move(bucket_of_[parameter]);
}

void BucketStore::move(std::size_t bucket) {
  at::Tensor& flat = flats_[bucket];
  flat = communicated_zeros(flat.numel(), flat.options(), group_);
  for (const BucketEntry& entry : plan_[bucket].entries) slots_[entry.parameter].move_to(flat, entry.offset);
}

bool BucketStore::is_held(std::size_t parameter, const at::Tensor& incoming) {
  const GradientSlot& slot = slots_[parameter];
  return !slot.is_installed() && holders_.hold(slot.parameter().grad(), incoming);
}

void BucketStore::drop_gradients() {
  const c10::NoGradGuard no_grad;
  holders_.begin_pass();
  for (std::size_t i = 0; i < size(); ++i) {
    at::Tensor& grad = slots_[i].parameter().mutable_grad();
    if (is_held(i, {})) {
      grad.zero_();
    } else {
      grad.reset();
    }
  }
}

void BucketStore::scale(double factor) {
  const c10::NoGradGuard no_grad;
  for (const at::Tensor& flat : flats_) flat.mul_(factor);
}

void BucketStore::settle(std::size_t parameter, bool used_by_any_rank) {
  slots_[parameter].settle(used_by_any_rank);
}

// An old bucket is freed as soon as the last of its gradients has moved.
void BucketStore::follow(BucketPlan plan) {
  plan_ = std::move(plan);
  flats_.clear();
  for (const BucketSpec& bucket : plan_) {
    const at::Tensor flat = make_flat(bucket, slots_[bucket.entries.front().parameter].parameter());
    for (const BucketEntry& entry : bucket.entries) {
      slots_[entry.parameter].move_to(flat, entry.offset);
      bucket_of_[entry.parameter] = flats_.size();
    }
    flats_.push_back(flat);
  }
}

std::string BucketStore::table() const {
  std::string text;
  for (std::size_t i = 0; i < plan_.size(); ++i) {
    text += str("#", i, " ", name_of(plan_[i].dtype), " ", flats_[i].nbytes(), " bytes:");
    for (const BucketEntry& entry : plan_[i].entries)
      text += str(" ", printable(slots_[entry.parameter].name()));
    text += "\n";
  }
  return text;
}

}  // namespace lockstep

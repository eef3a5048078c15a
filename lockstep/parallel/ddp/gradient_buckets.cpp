#include "lockstep/parallel/ddp/gradient_buckets.h"

#include <ATen/ops/zeros.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/fail_point.h"
#include "lockstep/base/str.h"
#include "lockstep/tensor/collectives.h"

namespace lockstep {
namespace {

std::string quoted(const std::string& name) { return str("\"", printable(name), "\""); }

}  // namespace

void refuse(const ProcessGroup& group, const std::string& what) {
  throw InvalidArgument(str("DistributedDataParallel on group \"", group.name(), "\", rank ", group.rank(),
                            " of ", group.size(), ": ", what));
}

GradientBuckets::GradientBuckets(const NamedTensors& parameters, const ProcessGroup& group,
                                 const BucketCaps& caps)
    : group_(group) {
  std::vector<BucketParameter> sizes;
  for (const auto& [name, tensor] : parameters) {
    sizes.push_back({static_cast<std::size_t>(tensor.numel()), dtype_of(tensor.scalar_type())});
  }
  std::vector<std::optional<Parameter>> placed(parameters.size());
  for (const BucketSpec& spec : bucket_plan(sizes, reverse_order(sizes.size()), caps)) {
    const auto type = parameters[spec.entries.front().parameter].second.scalar_type();
    Bucket bucket{.flat = shared_empty({static_cast<std::int64_t>(spec.elements)}, type, group_)};
    for (const BucketEntry& entry : spec.entries) {
      const auto& [name, tensor] = parameters[entry.parameter];
      placed[entry.parameter] =
          Parameter{.slot = GradientSlot(name, tensor, bucket.flat, entry.offset), .bucket = buckets_.size()};
    }
    stats_.bucket_bytes += bucket.flat.nbytes();
    buckets_.push_back(std::move(bucket));
  }
  stats_.buckets = buckets_.size();
  for (auto& parameter : placed) parameters_.push_back(std::move(*parameter));
}

void GradientBuckets::refuse_changed() const {
  for (const Parameter& parameter : parameters_) {
    if (const auto change = parameter.slot.change()) {
      refuse(group_, str("parameter ", quoted(parameter.slot.name()), " ", *change));
    }
  }
}

bool GradientBuckets::any_requires_grad() const {
  return std::any_of(parameters_.begin(), parameters_.end(),
                     [](const Parameter& parameter) { return parameter.slot.requires_grad(); });
}

std::optional<std::string> GradientBuckets::too_late(std::size_t index) const {
  const Parameter& parameter = parameters_[index];
  const bool started = parameter.counted && parameter.bucket < next_bucket_;
  if (!parameter.arrived && !started) return std::nullopt;
  return str(
      "parameter ", quoted(parameter.slot.name()), " got ",
      parameter.arrived ? "a second gradient in one backward()" : "a gradient after it was found unused");
}

void GradientBuckets::begin_pass() {
  arrived_ = 0;
  next_bucket_ = 0;
  for (Bucket& bucket : buckets_) bucket.missing = 0;
  for (Parameter& parameter : parameters_) {
    parameter.arrived = parameter.counted = false;
    ++buckets_[parameter.bucket].missing;
  }
}

void GradientBuckets::add(std::size_t index) {
  Parameter& parameter = parameters_[index];
  take(parameter);
  arrived_ += parameter.arrived ? 0 : 1;
  parameter.used = parameter.arrived = true;
  count(parameter);
}

void GradientBuckets::leave_out(std::size_t index) {
  Parameter& parameter = parameters_[index];
  if (parameter.counted) return;
  if (parameter.used && parameter.slot.has_gradient()) {
    take(parameter);
  } else {
    parameter.slot.contribute_nothing_new();
  }
  count(parameter);
}

void GradientBuckets::take(Parameter& parameter) {
  if (const auto refusal = parameter.slot.refusal()) {
    refuse(group_, str("parameter ", quoted(parameter.slot.name()), ": ", *refusal));
  }
  stats_.bytes_copied += parameter.slot.take_gradient();
}

void GradientBuckets::count(Parameter& parameter) {
  if (parameter.counted) return;
  parameter.counted = true;
  --buckets_[parameter.bucket].missing;
}

std::vector<std::string> GradientBuckets::without_gradient() const {
  std::vector<std::string> names;
  for (const Parameter& parameter : parameters_) {
    const bool kept_one = parameter.used && parameter.slot.has_gradient();
    if (!parameter.arrived && !kept_one) names.push_back(parameter.slot.name());
  }
  return names;
}

void GradientBuckets::start_complete() {
  const auto waits = [](const Bucket& bucket) { return bucket.missing > 0; };
  const bool more_to_come = std::any_of(buckets_.begin(), buckets_.end(), waits);
  while (next_bucket_ < buckets_.size() && !waits(buckets_[next_bucket_])) {
    Bucket& bucket = buckets_[next_bucket_];
    bucket.work = all_reduce(bucket.flat, ReduceOp::AVG, group_, /*async_op=*/true);
    ++next_bucket_;
    ++stats_.buckets_started;
    stats_.buckets_overlapped += more_to_come ? 1 : 0;
    if (next_bucket_ == 1 && buckets_.size() > 1) fail_point("ddp.mid_reduction");
  }
}

void GradientBuckets::start_used_map() {
  used_map_ = at::zeros({static_cast<std::int64_t>(parameters_.size())}, at::kByte);
  auto* flags = used_map_.data_ptr<std::uint8_t>();
  for (const Parameter& parameter : parameters_) *flags++ = parameter.used ? 1 : 0;
  used_map_work_ = all_reduce(used_map_, ReduceOp::MAX, group_, /*async_op=*/true);
}

void GradientBuckets::wait() {
  for (Bucket& bucket : buckets_) std::exchange(bucket.work, Work()).wait();
  std::exchange(used_map_work_, Work()).wait();
}

void GradientBuckets::settle() {
  const auto* used = used_map_.defined() ? used_map_.const_data_ptr<std::uint8_t>() : nullptr;
  for (Parameter& parameter : parameters_) {
    parameter.slot.settle(used == nullptr || *used++ != 0);
    parameter.used = false;
  }
  used_map_.reset();
  ++stats_.reductions;
}

}  // namespace lockstep

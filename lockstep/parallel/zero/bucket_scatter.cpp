#include "lockstep/parallel/zero/bucket_scatter.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/fail_point.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/purpose.h"
#include "lockstep/parallel/gradients/bucket_store.h"
#include "lockstep/parallel/gradients/hooks/bucket_numbers.h"
#include "lockstep/parallel/zero/gradient_meeting.h"
#include "lockstep/tensor/collectives.h"

namespace lockstep {
namespace {

std::int64_t signed_of(std::size_t count) { return static_cast<std::int64_t>(count); }

}  // namespace

BucketScatter::BucketScatter(const NamedTensors& parameters, const ProcessGroup& group, const ShardPlan& plan,
                             const GradientShare& share, const ScatterOptions& options, std::string model)
    : parameters_(tensors_of(parameters)),
      group_(group),
      basis_{.sizes = sizes_of(parameters), .shards = plan, .options = options},
      pieces_(share.layout.pieces),
      model_(std::move(model)) {
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    if (pieces_[i].bucket < flats_.size()) continue;  // flats are numbered as their first parameters come
    flats_.push_back(communicated_zeros(signed_of(share.elements[flats_.size()]),
                                        parameters_[i].options().requires_grad(false), group_));
  }
  lay_out(reverse_order(parameters_.size()));
}

void BucketScatter::lay_out(std::span<const std::size_t> order) {
  travels_.plan = scatter_buckets(basis_.sizes, order, basis_.options.caps);
  travels_.layout = shard_layout(basis_.sizes, basis_.shards, travels_.plan, group_.rank());
  std::size_t largest = 0;
  for (const BucketSpec& bucket : plan()) {
    if (is_packed(bucket)) largest = std::max(largest, bucket.elements * size_of(bucket.dtype));
  }
  for (at::Tensor& slot : ring_) {
    if (!slot.defined() || slot.nbytes() < largest)
      slot = communicated_zeros(signed_of(largest),
                                parameters_.front().options().dtype(at::kByte).requires_grad(false), group_);
  }
}

std::vector<std::size_t> BucketScatter::bucket_of() const {
  std::vector<std::size_t> buckets;
  for (const ShardPiece& piece : travels_.layout.pieces) buckets.push_back(piece.bucket);
  return buckets;
}

std::size_t BucketScatter::bytes() const {
  std::size_t bytes = 0;
  for (const at::Tensor& flat : flats_) bytes += flat.nbytes();
  for (const at::Tensor& slot : ring_) bytes += slot.nbytes();
  return bytes;
}

// Its elements in the parameter's order, also of a gradient with other strides.
at::Tensor BucketScatter::take_alone(std::size_t parameter) const {
  at::Tensor& grad = parameters_[parameter].mutable_grad();
  if (!grad.defined())
    return at::zeros({parameters_[parameter].numel()}, parameters_[parameter].options().requires_grad(false));
  return std::exchange(grad, at::Tensor()).contiguous().view({-1});
}

at::Tensor BucketScatter::pack(const BucketSpec& bucket, const at::Tensor& slot) const {
  const at::Tensor flat = slot.narrow(0, 0, signed_of(bucket.elements * size_of(bucket.dtype)))
                              .view(parameters_[bucket.entries.front().parameter].scalar_type());
  for (const BucketEntry& entry : bucket.entries) {
    const at::Tensor& parameter = parameters_[entry.parameter];
    const at::Tensor place =
        flat.narrow(0, signed_of(entry.offset), parameter.numel()).view(parameter.sizes());
    at::Tensor& grad = parameter.mutable_grad();
    if (grad.defined()) {
      place.copy_(grad);
      grad.reset();
    } else {
      place.zero_();
    }
  }
  return flat;
}

// This rank's part of a parameter in its share.
at::Tensor BucketScatter::place_of(std::size_t parameter) const {
  const ShardPiece& piece = pieces_[parameter];
  return flats_[piece.bucket].narrow(0, signed_of(piece.begin / size_of(piece.dtype)),
                                     signed_of(piece.count));
}

// A packed bucket has room for the result; that of a gradient that travels alone goes to the share, or where
// it can be added from. Nobody else's gradient is written to.
at::Tensor BucketScatter::output_of(std::size_t bucket, const at::Tensor& flat) const {
  const BucketRange mine = travels_.layout.ranges[bucket][static_cast<std::size_t>(group_.rank())];
  const BucketSpec& spec = plan()[bucket];
  if (is_packed(spec)) return flat.narrow(0, signed_of(mine.offset), signed_of(mine.count));
  if (!adds_) return place_of(spec.entries.front().parameter);
  return at::empty({signed_of(mine.count)}, flat.options());
}

void BucketScatter::start_next() {
  const at::NoGradGuard no_grad;
  if (travelling_.size() == IN_FLIGHT) absorb_oldest();
  const std::size_t bucket = next_++;
  const BucketSpec& spec = plan()[bucket];
  const at::Tensor flat =
      is_packed(spec) ? pack(spec, ring_[bucket % IN_FLIGHT]) : take_alone(spec.entries.front().parameter);
  std::vector<at::Tensor> parts;
  for (const BucketRange& range : travels_.layout.ranges[bucket])
    parts.push_back(flat.narrow(0, signed_of(range.offset), signed_of(range.count)));
  const at::Tensor mine = output_of(bucket, flat);
  const Acting acting(Purpose::SHARDED_STEP, lockstep::str(model_, ", bucket ", bucket),
                      static_cast<std::int32_t>(GradientMeeting::Reason::BACKWARD));
  Work work = reduce_scatter(mine, parts, ReduceOp::AVG, group_, /*async_op=*/true);
  travelling_.push_back({.bucket = bucket, .mine = mine, .work = std::move(work)});
  fail_point("zero.reduce");
}

void BucketScatter::absorb_oldest() {
  const Travelling oldest = std::move(travelling_.front());
  travelling_.pop_front();
  Work(oldest.work).wait();
  const BucketRange range = travels_.layout.ranges[oldest.bucket][static_cast<std::size_t>(group_.rank())];
  for (const BucketEntry& entry : plan()[oldest.bucket].entries) {
    const ShardPiece& piece = travels_.layout.pieces[entry.parameter];
    if (piece.count == 0) continue;
    const at::Tensor place = place_of(entry.parameter);
    const std::size_t offset = piece.begin / size_of(piece.dtype) - range.offset;
    const at::Tensor average = oldest.mine.narrow(0, signed_of(offset), signed_of(piece.count));
    if (adds_) {
      place.add_(average);
    } else if (place.const_data_ptr() != average.const_data_ptr()) {
      place.copy_(average);
    }
  }
}

void BucketScatter::finish() {
  const at::NoGradGuard no_grad;
  while (!travelling_.empty()) absorb_oldest();
  next_ = 0;
  adds_ = true;
}

}  // namespace lockstep

#include "lockstep/parallel/ddp/gradient_buckets.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <chrono>
#include <limits>

#include "lockstep/base/fail_point.h"
#include "lockstep/base/str.h"
#include "lockstep/parallel/ddp/ddp_wrapper.h"
#include "lockstep/parallel/gradients/hooks/bucket_numbers.h"
#include "lockstep/parallel/gradients/hooks/counting_backend.h"
#include "lockstep/tensor/collectives.h"

namespace lockstep {
namespace {

constexpr unsigned ANY = std::numeric_limits<unsigned>::max();

BucketParameter dimensions_of(const at::Tensor& tensor) {
  return {static_cast<std::size_t>(tensor.numel()), dtype_of(tensor.scalar_type())};
}

std::vector<BucketParameter> sizes_of(const NamedTensors& parameters) {
  std::vector<BucketParameter> sizes;
  for (const auto& [name, tensor] : parameters) sizes.push_back(dimensions_of(tensor));
  return sizes;
}

}  // namespace

GradientBuckets::GradientBuckets(const NamedTensors& dense, const NamedTensors& sparse, ProcessGroup group,
                                 const BucketCaps& caps)
    : group_(std::move(group)),
      caps_(caps),
      progress_(dense.size() + sparse.size()),
      plan_(bucket_plan(sizes_of(dense), reverse_order(dense.size()), caps)),
      holders_(dense) {
  std::vector<std::optional<Dense>> placed(dense.size());
  for (const BucketSpec& spec : plan_) {
    const at::Tensor& like = dense[spec.entries.front().parameter].second;
    Bucket bucket{.flat =
                      communicated_zeros(static_cast<std::int64_t>(spec.elements), like.options(), group_)};
    for (const BucketEntry& entry : spec.entries) {
      const auto& [name, tensor] = dense[entry.parameter];
      placed[entry.parameter] =
          Dense{.slot = GradientSlot(name, tensor, bucket.flat, entry.offset), .bucket = buckets_.size()};
    }
    stats_.bucket_bytes += bucket.flat.nbytes();
    buckets_.push_back(std::move(bucket));
  }
  stats_.buckets = buckets_.size();
  for (auto& parameter : placed) dense_.push_back(std::move(*parameter));
  for (const auto& [name, tensor] : sparse) sparse_.emplace_back(name, tensor);
}

const at::Tensor& GradientBuckets::tensor(std::size_t index) const {
  return is_dense(index) ? dense_[index].slot.parameter() : sparse_[index - dense_.size()].parameter();
}

const std::string& GradientBuckets::name(std::size_t index) const {
  return is_dense(index) ? dense_[index].slot.name() : sparse_[index - dense_.size()].name();
}

void GradientBuckets::refuse_changed() const {
  for (std::size_t i = 0; i < size(); ++i) {
    const auto change = is_dense(i) ? dense_[i].slot.change() : sparse_[i - dense_.size()].change();
    if (change) DDP_WRAPPER.refuse(group_, str("parameter ", in_quotes(name(i)), " ", *change));
  }
}

bool GradientBuckets::any_requires_grad() const {
  for (std::size_t i = 0; i < size(); ++i) {
    if (tensor(i).requires_grad()) return true;
  }
  return false;
}

std::optional<std::string> GradientBuckets::frozen_since() const {
  for (std::size_t i = 0; i < size(); ++i) {
    if (tensor(i).requires_grad()) continue;
    return str(in_quotes(name(i)),
               " required one when the model was wrapped and does not now: wrap the model again after "
               "requires_grad_(false)");
  }
  return std::nullopt;
}

std::optional<std::string> GradientBuckets::too_late(std::size_t index) const {
  const Progress& progress = progress_[index];
  const bool started = progress.counted && is_dense(index) && dense_[index].bucket < next_bucket_;
  if (progress.gradients < progress.expected && !started) return std::nullopt;
  const std::string who = str("parameter ", in_quotes(name(index)), " got ");
  if (graph_is_learnt_) {
    return str(who, "more gradients in this backward() than in the first (", progress.expected,
               "), but the graph was declared static");
  }
  return who + (progress.gradients > 0 ? "a second gradient in one backward()"
                                       : "a gradient after it was found unused");
}

void GradientBuckets::expect_any_graph() {
  for (Progress& progress : progress_) progress.expected = ANY;
}

void GradientBuckets::learn_graph() {
  for (Progress& progress : progress_) progress.expected = progress.gradients;
  graph_is_learnt_ = true;
}

void GradientBuckets::leave_out_unused() {
  for (std::size_t i = 0; i < size(); ++i) {
    if (progress_[i].expected == 0) leave_out(i);
  }
}

void GradientBuckets::begin_pass(const ParameterClaims& claims) {
  arrived_ = 0;
  arrivals_.clear();
  next_bucket_ = 0;
  for (Progress& progress : progress_) {
    progress.gradients = 0;
    progress.counted = false;
    arrived_ += progress.expected == 0 ? 1 : 0;
  }
  std::vector<at::Tensor> flats;
  for (Bucket& bucket : buckets_) {
    bucket.missing = 0;
    flats.push_back(bucket.flat);
  }
  std::vector<const GradientSlot*> slots;
  std::vector<std::size_t> bucket_of;
  for (Dense& parameter : dense_) {
    ++buckets_[parameter.bucket].missing;
    parameter.slot.keep_apart(claims.is_shared(slots.size()));
    slots.push_back(&parameter.slot);
    bucket_of.push_back(parameter.bucket);
  }
  holders_.begin_pass();
  for (const std::size_t bucket : kept_buckets(flats, slots, bucket_of)) move(bucket);
  places_.begin_pass(slots);
}

void GradientBuckets::end_pass() { places_.end_pass(); }

void GradientBuckets::add(std::size_t index, const at::Tensor& incoming) {
  Progress& progress = progress_[index];
  take(index, incoming);
  if (is_dense(index)) arrivals_.push_back(index);
  progress.used = true;
  ++progress.gradients;
  arrived_ += progress.gradients == progress.expected ? 1 : 0;
  if (progress.gradients >= progress.expected) count(index);
}

void GradientBuckets::leave_out(std::size_t index) {
  const Progress& progress = progress_[index];
  if (progress.counted) return;
  if (progress.used && tensor(index).grad().defined()) {
    take(index, {});
  } else if (is_dense(index)) {
    GradientSlot& slot = dense_[index].slot;
    make_room(dense_[index]);
    slot.contribute_nothing_new(is_held(slot, {}));
  } else {
    sparse_[index - dense_.size()].contribute_nothing_new();
  }
  count(index);
}

// What was made in a place that was meant for a gradient keeps it, and the whole bucket moves. The bucket is not in flight,
// because one gradient is missing.
void GradientBuckets::make_room(const Dense& parameter) {
  parameter.slot.end_offer();
  if (!parameter.slot.is_occupied()) return;
  places_.mistaken();
  move(parameter.bucket);
}

void GradientBuckets::move(std::size_t bucket) {
  at::Tensor& flat = buckets_[bucket].flat;
  flat = communicated_zeros(flat.numel(), flat.options(), group_);
  for (Dense& parameter : dense_) {
    if (parameter.bucket == bucket) parameter.slot.move_to(flat, parameter.slot.offset());
  }
}

bool GradientBuckets::is_held(const GradientSlot& slot, const at::Tensor& incoming) {
  return !slot.is_installed() && holders_.hold(slot.parameter().grad(), incoming);
}

// Old buckets go as soon as the last of their gradients has moved.
void GradientBuckets::rebuild(BucketPlan plan) {
  plan_ = std::move(plan);
  buckets_.clear();
  stats_.bucket_bytes = 0;
  for (const BucketSpec& spec : plan_) {
    const at::Tensor& first = dense_[spec.entries.front().parameter].slot.parameter();
    Bucket bucket{.flat =
                      communicated_zeros(static_cast<std::int64_t>(spec.elements), first.options(), group_)};
    for (const BucketEntry& entry : spec.entries) {
      Dense& parameter = dense_[entry.parameter];
      parameter.slot.move_to(bucket.flat, entry.offset);
      parameter.bucket = buckets_.size();
    }
    stats_.bucket_bytes += bucket.flat.nbytes();
    buckets_.push_back(std::move(bucket));
  }
  stats_.buckets = buckets_.size();
  ++stats_.rebuilds;
  if (hook_) describe_parts();
}

void GradientBuckets::take(std::size_t index, const at::Tensor& incoming) {
  const auto refusal =
      is_dense(index) ? dense_[index].slot.refusal() : sparse_[index - dense_.size()].refusal();
  if (refusal) DDP_WRAPPER.refuse(group_, str("parameter ", in_quotes(name(index)), ": ", *refusal));
  if (!is_dense(index)) return sparse_[index - dense_.size()].take_gradient();
  GradientSlot& slot = dense_[index].slot;
  if (!slot.is_apart()) places_.note(index, slot);
  make_room(dense_[index]);
  const std::size_t copied = slot.take_gradient(is_held(slot, incoming));
  if (copied > 0) places_.missed(index);
  stats_.bytes_copied += copied;
}

void GradientBuckets::count(std::size_t index) {
  if (std::exchange(progress_[index].counted, true) || !is_dense(index)) return;
  --buckets_[dense_[index].bucket].missing;
}

std::vector<std::string> GradientBuckets::without_gradient() const {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < size(); ++i) {
    const Progress& progress = progress_[i];
    const bool kept_one = !graph_is_learnt_ && progress.used && tensor(i).grad().defined();
    if (progress.gradients < progress.expected && !kept_one) names.push_back(name(i));
  }
  return names;
}

void GradientBuckets::start_complete() {
  const auto waits = [](const Bucket& bucket) { return bucket.missing > 0; };
  const bool more_to_come = std::any_of(buckets_.begin(), buckets_.end(), waits);
  while (next_bucket_ < buckets_.size() && !waits(buckets_[next_bucket_])) {
    const auto begin = std::chrono::steady_clock::now();
    reduce(next_bucket_, buckets_[next_bucket_].flat);
    clock_.starting(begin, std::chrono::steady_clock::now());
    ++next_bucket_;
    ++stats_.buckets_started;
    stats_.buckets_overlapped += more_to_come ? 1 : 0;
    if (next_bucket_ == 1 && buckets_.size() > 1) fail_point("ddp.mid_reduction");
  }
}

void GradientBuckets::reduce(std::size_t index, const at::Tensor& flat) {
  Bucket& bucket = buckets_[index];
  const Acting acting(Purpose::GRADIENTS, bucket_name(index), mark_);
  if (!hook_) {
    stats_.bytes_sent += flat.nbytes();
    bucket.work = all_reduce(flat, ReduceOp::AVG, group_, /*async_op=*/true);
    return;
  }
  steps_.push_back(
      hook_->run(GradBucket(index, index + 1 == buckets_.size(), flat, bucket.parts, *hook_group_)));
}

void GradientBuckets::set_hook(std::shared_ptr<CommHook> hook) {
  hook_ = std::move(hook);
  hook_sent_ = std::make_shared<std::atomic<std::uint64_t>>(0);
  hook_group_ = counting_group(group_, hook_sent_);
  describe_parts();
}

void GradientBuckets::describe_parts() {
  std::vector<std::shared_ptr<GradBucket::Parts>> parts;
  for (std::size_t i = 0; i < buckets_.size(); ++i) parts.push_back(std::make_shared<GradBucket::Parts>());
  for (const Dense& parameter : dense_) {
    const GradientSlot& slot = parameter.slot;
    parts[parameter.bucket]->push_back({.name = slot.name(),
                                        .parameter = slot.parameter(),
                                        .offset = static_cast<std::int64_t>(slot.offset()),
                                        .count = slot.parameter().numel(),
                                        .strides = slot.alias().strides().vec()});
  }
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    std::sort(parts[i]->begin(), parts[i]->end(),
              [](const GradBucketPart& a, const GradBucketPart& b) { return a.offset < b.offset; });
    buckets_[i].parts = std::move(parts[i]);
  }
}

DistributedDataParallelStats GradientBuckets::stats() const {
  DistributedDataParallelStats all = stats_;
  all.last_step = clock_.last();
  if (hook_sent_) all.bytes_sent += *hook_sent_;
  return all;
}

void GradientBuckets::start_used_map() {
  used_map_ = at::zeros({static_cast<std::int64_t>(size())}, at::kByte);
  auto* flags = used_map_.data_ptr<std::uint8_t>();
  for (const Progress& progress : progress_) *flags++ = progress.used ? 1 : 0;
  const Acting acting(Purpose::GRADIENTS, model_, mark_);
  used_map_work_ = all_reduce(used_map_, ReduceOp::MAX, group_, /*async_op=*/true);
}

void GradientBuckets::start_order() {
  const std::vector<std::size_t> order = arrival_order(arrivals_, dense_.size());
  if (buckets_.size() < 2) return;  // on every rank: there is nothing to start earlier
  order_ = at::empty({static_cast<std::int64_t>(order.size())}, at::kLong);
  std::copy(order.begin(), order.end(), order_.mutable_data_ptr<std::int64_t>());
  const Acting acting(Purpose::GRADIENTS, model_, mark_);
  order_work_ = broadcast(order_, GroupRank{0}, group_, /*async_op=*/true);
}

void GradientBuckets::follow_order() {
  if (!order_.defined()) return;
  const auto* first = order_.const_data_ptr<std::int64_t>();
  const std::vector<std::size_t> order(first, first + order_.numel());
  order_.reset();
  std::vector<BucketParameter> sizes;
  for (const Dense& parameter : dense_) sizes.push_back(dimensions_of(parameter.slot.parameter()));
  BucketPlan plan = bucket_plan(sizes, order, caps_);
  if (plan != plan_) rebuild(std::move(plan));
}

std::string GradientBuckets::table() const {
  std::string text;
  for (std::size_t i = 0; i < plan_.size(); ++i) {
    text += str("#", i, " ", name_of(plan_[i].dtype), " ", buckets_[i].flat.nbytes(), " bytes:");
    for (const BucketEntry& entry : plan_[i].entries) text += str(" ", printable(name(entry.parameter)));
    text += "\n";
  }
  for (const SparseGradient& gradient : sparse_) text += str("sparse: ", printable(gradient.name()), "\n");
  return text;
}

void GradientBuckets::wait() {
  const Acting acting(Purpose::GRADIENTS, model_, mark_);
  for (SparseGradient& gradient : sparse_) sparse_bytes_ += gradient.reduce(group_);
  auto steps = std::exchange(steps_, {});
  finish_steps(steps);
  for (Bucket& bucket : buckets_) std::exchange(bucket.work, Work()).wait();
  std::exchange(used_map_work_, Work()).wait();
  std::exchange(order_work_, Work()).wait();
}

void GradientBuckets::scale(double factor) {
  const c10::NoGradGuard no_grad;
  for (const Bucket& bucket : buckets_) bucket.flat.mul_(factor);
  for (SparseGradient& gradient : sparse_) gradient.scale(factor);
}

void GradientBuckets::drop_gradients() {
  const c10::NoGradGuard no_grad;
  holders_.begin_pass();
  for (std::size_t i = 0; i < size(); ++i) {
    at::Tensor& grad = tensor(i).mutable_grad();
    if (is_dense(i) && is_held(dense_[i].slot, {})) {
      grad.zero_();
    } else {
      grad.reset();
    }
  }
}

void GradientBuckets::settle() {
  const auto* used = used_map_.defined() ? used_map_.const_data_ptr<std::uint8_t>() : nullptr;
  for (std::size_t i = 0; i < size(); ++i) {
    const bool used_by_any = used == nullptr || used[i] != 0;
    if (is_dense(i)) {
      dense_[i].slot.settle(used_by_any);
    } else {
      sparse_[i - dense_.size()].settle(used_by_any);
    }
    progress_[i].used = false;
  }
  stats_.bytes_sent += std::exchange(sparse_bytes_, 0);
  if (!graph_is_learnt_) used_map_.reset();
  ++stats_.reductions;
  end_step();
}

void GradientBuckets::end_step() {
  const DistributedDataParallelStats all = stats();
  stats_.last_step_bytes_copied = all.bytes_copied - std::exchange(earlier_.copied, all.bytes_copied);
  stats_.last_step_bytes_sent = all.bytes_sent - std::exchange(earlier_.sent, all.bytes_sent);
}

}  // namespace lockstep

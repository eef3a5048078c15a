#include "lockstep/parallel/gradients/bucket_reduction.h"

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/fail_point.h"
#include "lockstep/comm/purpose.h"
#include "lockstep/parallel/gradients/hooks/counting_backend.h"
#include "lockstep/tensor/collectives.h"

namespace lockstep {

BucketReduction::BucketReduction(const BucketStore& store, ProcessGroup group, std::string model)
    : store_(store), group_(std::move(group)), model_(std::move(model)) {}

void BucketReduction::require_idle() const {
  if (state_ != State::IDLE) throw InternalError("the buckets of a reduction change while it is under way");
}

void BucketReduction::set_hook(std::shared_ptr<CommHook> hook) {
  require_idle();
  auto sent = std::make_shared<std::atomic<std::uint64_t>>(0);
  const ProcessGroup counting = counting_group(group_, sent);
  hooked_ = std::make_unique<Hooked>(
      Hooked{.hook = std::move(hook), .sent = std::move(sent), .group = counting, .parts = {}, .steps = {}});
  describe_parts();
}

void BucketReduction::follow_store() {
  require_idle();
  if (hooked_) describe_parts();
}

void BucketReduction::describe_parts() {
  hooked_->parts.clear();
  for (const BucketSpec& bucket : store_.plan()) {
    const auto parts = std::make_shared<GradBucket::Parts>();
    for (const BucketEntry& entry : bucket.entries) {
      const GradientSlot& slot = store_.slot(entry.parameter);
      parts->push_back({.name = slot.name(),
                        .parameter = slot.parameter(),
                        .offset = static_cast<std::int64_t>(entry.offset),
                        .count = slot.parameter().numel(),
                        .strides = slot.alias().strides().vec()});
    }
    hooked_->parts.push_back(parts);
  }
}

const std::string& BucketReduction::name_of_bucket(std::size_t bucket) {
  while (names_.size() <= bucket)
    names_.push_back(model_ + (model_.empty() ? "" : ", ") + "bucket " + std::to_string(names_.size()));
  return names_[bucket];
}

void BucketReduction::start_next(std::int32_t mark) {
  if (are_all_started()) throw InternalError("a bucket is started that the plan does not have");
  const Acting acting(Purpose::GRADIENTS, name_of_bucket(next_), mark);
  reduce(next_++);
  state_ = are_all_started() ? State::STARTED : State::STARTING;
  if (next_ == 1 && state_ == State::STARTING) fail_point("ddp.mid_reduction");
}

void BucketReduction::reduce(std::size_t bucket) {
  const at::Tensor& flat = store_.flat(bucket);
  if (!hooked_) {
    bytes_sent_ += flat.nbytes();
    works_.push_back(all_reduce(flat, ReduceOp::AVG, group_, /*async_op=*/true));
    return;
  }
  hooked_->steps.push_back(hooked_->hook->run(
      GradBucket(bucket, bucket + 1 == store_.buckets(), flat, hooked_->parts[bucket], hooked_->group)));
}

void BucketReduction::finish() {
  if (hooked_) {
    auto steps = std::exchange(hooked_->steps, {});
    finish_steps(steps);
  }
  for (Work& work : works_) std::exchange(work, Work()).wait();
  works_.clear();
  next_ = 0;
  state_ = State::IDLE;
}

BucketRange BucketReduction::owned(std::size_t bucket) const {
  return {.offset = 0, .count = store_.plan()[bucket].elements};
}

std::uint64_t BucketReduction::bytes_sent() const {
  return bytes_sent_ + (hooked_ ? hooked_->sent->load() : 0);
}

}  // namespace lockstep

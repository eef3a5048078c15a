// BucketReduction: reduces the buckets of a store over the ranks of a group, in index order. The result is
// the average, or the result of a communication hook.
//
//   BucketReduction reduction(store, group, "SimpleCNN");
//   reduction.start_next(mark);            // bucket 0: returns at once
//   reduction.start_next(mark);            // bucket 1
//   reduction.finish();                    // store.flat(i) holds the result, the same on every rank
//   reduction.owned(1);                    // the part of bucket 1 that this rank has the result of
//
//                  first bucket starts                  last bucket starts
//     ┌──────┐ ─────────────────────────▶ ┌──────────┐ ────────────────────▶ ┌─────────┐
//     │ IDLE │                            │ STARTING │                       │ STARTED │
//     └──────┘ ◀───────────────────────── └──────────┘                       └─────────┘
//        ▲           finish()                                                     │
//        └────────────────────────────────────────────────────────────────────────┘ finish()
//
// The only bucket of a store is the first and the last: IDLE becomes STARTED.
//
// Collective  start_next() and finish(): every rank calls them in the same order.
// Fails       with the error of the group or the hook. The reduction cannot be used after that.
//             InternalError: more buckets started than there are, or other buckets or another hook while it
//             is not IDLE.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/comm/work.h"
#include "lockstep/parallel/gradients/bucket_store.h"
#include "lockstep/parallel/gradients/hooks/comm_hook.h"

namespace lockstep {

class BucketReduction {
 public:
  // The store outlives it. `model` is the model's name in messages, or empty.
  BucketReduction(const BucketStore& store, ProcessGroup group, std::string model);
  BucketReduction(const BucketReduction&) = delete;
  BucketReduction& operator=(const BucketReduction&) = delete;
  ~BucketReduction() = default;

  // Makes the hook reduce the buckets from now on. While IDLE.
  void set_hook(std::shared_ptr<CommHook> hook);
  // null if there is none
  std::shared_ptr<CommHook> hook() const { return hooked_ ? hooked_->hook : nullptr; }
  // The store has new buckets. While IDLE.
  void follow_store();

  // number of buckets that have been started
  std::size_t started() const { return next_; }
  bool are_all_started() const { return next_ == store_.buckets(); }
  // Starts the next bucket, whose gradients have all arrived. The mark travels with the call
  // (comm/purpose.h).
  void start_next(std::int32_t mark);
  // Waits for all buckets that were started.
  void finish();
  // The part of the bucket that holds the result on this rank: here all of it.
  BucketRange owned(std::size_t bucket) const;
  std::uint64_t bytes_sent() const;  // bytes that this rank has contributed since construction

 private:
  enum class State { IDLE, STARTING, STARTED };
  struct Hooked {
    std::shared_ptr<CommHook> hook;
    std::shared_ptr<std::atomic<std::uint64_t>> sent;
    ProcessGroup group;                                           // counts its bytes in `sent`
    std::vector<std::shared_ptr<const GradBucket::Parts>> parts;  // by bucket
    std::vector<HookStep> steps;                                  // of the buckets that were started
  };
  void require_idle() const;
  void reduce(std::size_t bucket);
  void describe_parts();
  const std::string& name_of_bucket(std::size_t bucket);

  const BucketStore& store_;
  const ProcessGroup group_;
  const std::string model_;
  State state_ = State::IDLE;
  std::size_t next_ = 0;
  std::vector<Work> works_;  // used without a hook
  std::unique_ptr<Hooked> hooked_;
  std::vector<std::string> names_;  // "SimpleCNN, bucket 1", made when first needed
  std::uint64_t bytes_sent_ = 0;    // counted without a hook
};

}  // namespace lockstep

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
// Fails       with the error of the group or the hook; after that the reduction is of no more use.
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

  // From now on the hook reduces the buckets. While IDLE.
  void set_hook(std::shared_ptr<CommHook> hook);
  std::shared_ptr<CommHook> hook() const { return hooked_ ? hooked_->hook : nullptr; }  // null: none
  // The store has been laid out in other buckets. While IDLE.
  void follow_store();

  // Buckets before this one have been started.
  std::size_t started() const { return next_; }
  bool are_all_started() const { return next_ == store_.buckets(); }
  // Its gradients have all come. The mark travels with the call (comm/purpose.h).
  void start_next(std::int32_t mark);
  // Waits for all buckets that were started.
  void finish();
  // Every rank gets the whole result.
  BucketRange owned(std::size_t bucket) const;
  std::uint64_t bytes_sent() const;  // contributed by this rank, ever

 private:
  enum class State { IDLE, STARTING, STARTED };
  struct Hooked {
    std::shared_ptr<CommHook> hook;
    std::shared_ptr<std::atomic<std::uint64_t>> sent;
    ProcessGroup group;                                           // counts in `sent`
    std::vector<std::shared_ptr<const GradBucket::Parts>> parts;  // by bucket
    std::vector<HookStep> steps;                                  // of the buckets started
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
  std::vector<Work> works_;  // without a hook
  std::unique_ptr<Hooked> hooked_;
  std::vector<std::string> names_;  // "SimpleCNN, bucket 1", as far as they were needed
  std::uint64_t bytes_sent_ = 0;    // without a hook
};

}  // namespace lockstep

// GradientMeeting: tells all ranks that this rank has finished the backward passes of a step, where its
// gradients lie, and which parameters they belong to.
//
//   GradientMeeting meeting(&store, group, "SimpleCNN");
//   const Met met = meeting.hold(GradientMeeting::Reason::STEP, used);     // returns when all ranks are here
//   met.flats[0][1];                     // bucket 0 of rank 1, or null where this process cannot see it
//   met.used[3];                         // some rank has a gradient of parameter 3
//   const LeftForwards::Attempt attempt(meeting.left_forwards());     // around a forward: compared by hold()
//
// Collective  hold(): every rank, for the same reason.
// Order       Data that a rank wrote before its call is visible to all ranks when they return. Until the next
//             call the gradients of all ranks stay as they are, if no rank writes to them.
// Fails       Mismatch, on all ranks, if the reasons differ, or if an exception left other numbers of
// forwards
//             behind on some ranks; PeerLost, Timeout, Aborted as any collective.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/parallel/gradients/bucket_store.h"
#include "lockstep/parallel/replicas/left_forwards.h"

namespace lockstep {

struct Met {
  std::vector<bool> used;                            // by parameter
  std::vector<std::vector<const std::byte*>> flats;  // by bucket, by rank; empty without memory in common
  std::vector<std::shared_ptr<std::byte>> holders;   // keep the memory of `flats` mapped
};

class GradientMeeting {
 public:
  enum class Reason : std::int32_t { STEP = 1, AVERAGE, END, BACKWARD, UNITS = 16 /* and more */ };

  // The store outlives it; null: the ranks' gradients lie nowhere in common. `model` is the model's name in
  // messages.
  GradientMeeting(const BucketStore* store, ProcessGroup group, std::string model)
      : store_(store), group_(std::move(group)), model_(std::move(model)) {}

  // `used` says for each parameter whether this rank has a gradient of it.
  Met hold(Reason reason, const std::vector<bool>& used);
  // The last hold() has failed on all ranks, because exceptions left different numbers of forwards behind.
  bool is_refused() const { return is_refused_; }
  // Returns when all ranks have called it.
  void end() const;
  LeftForwards& left_forwards() { return left_forwards_; }

 private:
  const BucketStore* const store_;
  const ProcessGroup group_;
  const std::string model_;
  LeftForwards left_forwards_;
  bool is_refused_ = false;
};

}  // namespace lockstep

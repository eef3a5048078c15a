// FailureRecord: the first failure of a group, in the shared header (segment/layout.h). The first rank that
// fails writes it, and every rank reads the same.
//
//   NONE --record() of the first rank--> WRITING --its text is there--> WRITTEN
//
//   FailureRecord failure(control);
//   failure.record(aborted(rank, reason, ErrorCode::ABORTED, -1));
//   if (failure.is_set()) throw_failure(what, place, failure.read(rank));
//
// Threads: any.
#pragma once

#include "lockstep/comm/backends/segment/layout.h"
#include "lockstep/comm/group/group_failure.h"

namespace lockstep::shared {

class FailureRecord {
 public:
  explicit FailureRecord(const Control& control) : control_(control) {}

  // A rank that sees the failure also sees the data that were complete before it. read() acquires the failure
  // itself.
  bool is_set() const {
    return control_.header().failure_state.load(std::memory_order_acquire) !=
           static_cast<std::uint32_t>(FailureState::NONE);
  }
  // Does nothing if a failure is already recorded. Wakes all sleepers.
  void record(const GroupFailure& failure) const;
  // Returns the recorded failure. `reader` is this rank; it reports a reporter that died while it wrote.
  GroupFailure read(int reader) const;

 private:
  const Control control_;
};

}  // namespace lockstep::shared

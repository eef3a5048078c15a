// Diagnosis: why a wait does not end. It finds dead, stopped and late ranks, and makes the failure's sentence
// with comm/group/group_failure.h. It changes nothing.
//
//   const Diagnosis diagnosis(membership, control);
//   if (const auto failure = diagnosis.lost_peer(target)) record(*failure);
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "lockstep/comm/backends/segment/layout.h"
#include "lockstep/comm/backends/shared/membership.h"
#include "lockstep/comm/backends/shared/waitable.h"
#include "lockstep/comm/group/group_failure.h"

namespace lockstep::shared {

class Diagnosis {
 public:
  Diagnosis(const Membership& membership, const Control& control)
      : membership_(membership), control_(control) {}

  // Returns a failure if a rank that `target` needs is gone. A target that needs every rank fails with any
  // rank that is gone without having left. Returns none if the target was ready before.
  std::optional<GroupFailure> lost_peer(Waitable& target) const;
  GroupFailure timeout(const Waitable& target, std::chrono::nanoseconds patience) const;
  // Describes the awaited ranks: for each its process, its state and its last call.
  std::string late_ranks(const Waitable& target) const;
  std::string describe_peer(int rank) const;  // "rank 3 (pid 4121)", "rank 1 (rank 3 of the world, pid 4121)"
  std::string last_call(int rank) const;      // "all_reduce #118"; empty if it made none

 private:
  const Membership& membership_;
  const Control& control_;
};

}  // namespace lockstep::shared

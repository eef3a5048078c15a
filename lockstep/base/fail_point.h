// Named places where a test can make a process die, stop, leave or throw. So a test can hit every phase of a
// job exactly.
//
//   fail_point("ddp.mid_reduction");                                     // in the code
//   LOCKSTEP_FAIL_POINT='ddp.mid_reduction@2+5=kill' lockstep run ...    // rank 2, the sixth time it gets
//                                                                        // there
//
// Actions: kill (SIGKILL to itself), stop (SIGSTOP), exit (_exit(0), as a rank that returns early), throw
// (InternalError). Costs one load and one branch if the variable is unset.
#pragma once

#include <atomic>
#include <string_view>

#include "lockstep/base/visibility.h"

namespace LOCKSTEP_PUBLIC lockstep {

namespace detail {
enum class FailPoints : char { UNKNOWN, NONE, SOME };
extern std::atomic<FailPoints> fail_points;  // of this process; NONE if the variable is unset
void reach_fail_point(std::string_view name);
}  // namespace detail

// Acts if `name` and this process's rank (from the environment) are those of the variable.
inline void fail_point(std::string_view name) {
  if (detail::fail_points.load(std::memory_order_relaxed) != detail::FailPoints::NONE)
    detail::reach_fail_point(name);
}

}  // namespace lockstep

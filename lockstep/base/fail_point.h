// Named places where a test can make a process die, stop, leave or throw, so that every phase of a job can be hit exactly.
//
//   fail_point("ddp.mid_reduction");                                     // in the code
//   LOCKSTEP_FAIL_POINT='ddp.mid_reduction@2+5=kill' lockstep run ...    // rank 2, the sixth time it gets there
//
// Actions: kill (SIGKILL to itself), stop (SIGSTOP), exit (_exit(0), as a rank that returns early), throw (InternalError).
// Costs one load and one branch when the variable is unset.
#pragma once

#include <string_view>

namespace lockstep {

// Hits when `name` and this process's rank (from the environment) are the ones asked for.
void fail_point(std::string_view name);

}  // namespace lockstep

// run_ranks: starts N ranks of a command, waits for all of them, and returns how each ended and its output.
// For test harnesses. Standard input of every rank is empty, and run_ranks() prints nothing.
//
//   LaunchSpec spec;
//   spec.command = {"/proc/self/exe", "--gtest_filter=..."};
//   spec.ranks = 4;
//   spec.log_base = "";
//   spec.stop_on_failure = false;          // the other ranks must notice a failure themselves
//   spec.time_limit = 30s;                 // then all are killed and result.timed_out is set
//   const RunResult result = run_ranks(spec);
//   EXPECT_EQ(result.ranks[2].status.signal, SIGKILL);
//
// Blocks   until every rank and all its descendants have ended.
// Fails    ProgramError if the program cannot be run; SystemError.
// Threads  the caller should be the only thread: SIGCHLD is blocked meanwhile. With more threads a death may
//          be noticed 0.1 s late. From the first call on this process adopts orphaned descendants
//          (PR_SET_CHILD_SUBREAPER). It does not touch children that existed before the call.
#pragma once

#include "lockstep/launch/launch_spec.h"

namespace lockstep {

RunResult run_ranks(const LaunchSpec& spec);

}  // namespace lockstep

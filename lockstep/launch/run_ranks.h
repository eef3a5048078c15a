// Starts N ranks of a command in this process's name, waits for all of them, and tells how each ended and
// what it printed: what a test harness needs. Standard input of every rank is empty; nothing is printed here.
//
//   LaunchSpec spec;
//   spec.command = {"/proc/self/exe", "--gtest_filter=..."};
//   spec.ranks = 4;
//   spec.log_base = "";
//   spec.stop_on_failure = false;          // survivors are to notice by themselves
//   spec.time_limit = 30s;                 // then everything is killed and result.timed_out is set
//   const RunResult result = run_ranks(spec);
//   EXPECT_EQ(result.ranks[2].status.signal, SIGKILL);
//
// Blocks   until every rank and everything it started has ended.
// Fails    ProgramError when the program cannot be run; SystemError.
// Threads  the caller should be the only thread: SIGCHLD is blocked meanwhile. With other threads a death may
//          be noticed 0.1 s late. From the first call on this process adopts orphaned descendants
//          (PR_SET_CHILD_SUBREAPER); children that it had before the call are left alone.
#pragma once

#include "lockstep/launch/launch_spec.h"

namespace lockstep {

RunResult run_ranks(const LaunchSpec& spec);

}  // namespace lockstep

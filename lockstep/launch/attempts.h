// Runs a job to its end: starts the ranks, and starts them again after each failure for which restart_plan()
// returns RESTART. Each attempt has its own Supervisor, sockets, log folder and keys in the store. So nothing
// of dead ranks reaches the next attempt. On several machines all launchers start the next attempt, or none
// does (node_group.h).
//
//   return run_attempts(job, {control, standard_input, mask}, signals, console);
//
// Prints the reason of each failure and of each restart. The exit code is that of the last attempt.
#pragma once

#include <csignal>

#include "lockstep/launch/console.h"
#include "lockstep/launch/prepare.h"
#include "lockstep/os/signal_queue.h"

namespace lockstep {

struct GuardianEnds {
  int control = -1;         // the pipe from the front process
  int standard_input = -1;  // of rank 0; an attempt reads what the previous one left unread
  sigset_t rank_mask{};
};

// Blocks until every process of the job has ended and its output is written. Never throws: it prints errors
// and returns EXIT_INTERNAL.
int run_attempts(PreparedJob& job, const GuardianEnds& ends, SignalQueue& signals, Console& console);

}  // namespace lockstep

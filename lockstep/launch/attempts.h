// Runs a job to its end: the ranks once, and again after each failure that restart_plan() answers with
// RESTART. Each attempt has its own Supervisor, sockets, log folder and keys in the store, so nothing of
// dead ranks reaches the next one. On several machines all launchers start the next attempt, or none does
// (node_group.h).
//
//   return run_attempts(job, {control, standard_input, mask}, signals, console);
//
// The reason of each failure and of each restart is printed; the exit code is that of the last attempt.
#pragma once

#include <csignal>

#include "lockstep/launch/console.h"
#include "lockstep/launch/prepare.h"
#include "lockstep/os/signal_queue.h"

namespace lockstep {

struct GuardianEnds {
  int control = -1;         // from the front
  int standard_input = -1;  // of rank 0: what an attempt leaves unread the next one reads
  sigset_t rank_mask{};
};

// Blocks until nothing of the job lives and its output is written. Never throws: errors become lines and
// EXIT_INTERNAL.
int run_attempts(PreparedJob& job, const GuardianEnds& ends, SignalQueue& signals, Console& console);

}  // namespace lockstep

// run_guarded: `lockstep run`. It leaves no process behind, whichever of the job's processes is killed.
//
//   the user's shell
//    └─ front       the user's process: passes signals on, waits, passes the keyboard's keys to rank 0
//        └─ guardian    supervises (supervisor.h); in a process group of its own, so no signal to the front's
//                       group hits it
//            ├─ rank 0      each in a process group of its own, dies with the guardian
//            │   └─ ...     orphans become children of the guardian, or of the front when that is gone
//            └─ rank 1
//
// Killed front     the guardian reads the end of their pipe, kills all its descendants, and ends.
// Killed guardian  the ranks die with it (PR_SET_PDEATHSIG). The front adopts their orphans and kills them.
#pragma once

#include "lockstep/launch/prepare.h"

namespace lockstep {

// Blocks until the job has ended. Returns the command's exit code. Prints to standard output and error. Must
// be called from the only thread of the process. Throws SystemError if the guardian cannot be started.
int run_guarded(PreparedJob job);

}  // namespace lockstep

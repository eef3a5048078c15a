// Exit codes by which a program gives its launcher a message.
//
//   return dist::EXIT_REQUEUE;  // the state is saved: start me again
#pragma once

#include "lockstep/base/visibility.h"

namespace LOCKSTEP_PUBLIC lockstep {

// The rank asks to be started again: it has saved its state because it was told to stop (stop_signals.h). It
// is not a failure. `lockstep run` passes it on as its own exit code; a batch script reads it and requeues
// the job (docs/clusters.md). The number is sysexits.h's EX_TEMPFAIL, which training frameworks use for this.
inline constexpr int EXIT_REQUEUE = 75;

}  // namespace lockstep

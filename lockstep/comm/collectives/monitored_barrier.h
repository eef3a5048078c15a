// monitored_barrier: a barrier that names the ranks that did not come. For finding out why a job hangs.
//
//   comm::monitored_barrier(world, 10s);      // "ranks 1, 3 did not come within 10000 ms"
//
// Collective  every rank of `group`. Rank 0 collects a word from each rank and then releases all.
// Blocks      until all have arrived.
// Fails       Timeout on rank 0, which names the ranks that did not come: all of them, or with
//             wait_all_ranks = false the first. Aborted with the same text on the ranks that did come. The
//             group is then closed. PeerLost as soon as a rank is known to be dead.
#pragma once

#include <chrono>

#include "lockstep/base/visibility.h"
#include "lockstep/comm/process_group.h"

namespace lockstep {
namespace LOCKSTEP_PUBLIC comm {

void monitored_barrier(const ProcessGroup& group,
                       std::chrono::milliseconds timeout = std::chrono::minutes(30),
                       bool wait_all_ranks = true);

}  // namespace comm
}  // namespace lockstep

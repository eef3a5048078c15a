// monitored_barrier: a barrier that names the ranks that did not come. Use it to find out why a job hangs.
//
//   comm::monitored_barrier(world, 10s);      // "ranks 1, 3 did not come within 10000 ms"
//
// Collective  every rank of `group`. Rank 0 receives a message from each rank and then releases all.
// Blocks      until all have come.
// Fails       Timeout on rank 0 that names the ranks that did not come: all of them, or the first with
//             wait_all_ranks = false. Aborted with the same text on the other ranks that came. The group is
//             then closed. PeerLost as soon as a rank is known to be dead.
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

// barrier: returns when every rank of the group has called it.
//
//   comm::barrier(world);
//
// Collective  every rank of `group`. Blocks until all have called it, unless async_op. Fails like all_reduce.
#pragma once

#include "lockstep/base/visibility.h"
#include "lockstep/comm/process_group.h"

namespace lockstep {
namespace LOCKSTEP_PUBLIC comm {

Work barrier(const ProcessGroup& group, bool async_op = false);

}  // namespace comm
}  // namespace lockstep

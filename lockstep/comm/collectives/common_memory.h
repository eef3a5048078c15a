// allocate_common: one piece of memory that all ranks of a group use, where they lie on one machine.
//
//   const std::shared_ptr<void> table = comm::allocate_common(world, 4096);
//   if (table == nullptr) ...                        // ranks of several machines, or of a backend without
//   if (world.rank() == 0) fill(table.get());
//   comm::barrier(world);                            // what rank 0 wrote, all ranks read
//
// Result      64-byte aligned and zeroed; each rank sees it at an address of its own. Null, on every rank,
//             over a backend whose ranks have no memory in common: all but `shm`, `thread` and `self`.
// Collective  every rank of `group`, with the same number of bytes, in the same order of calls. Blocks until
//             all have called.
// Order       what one rank writes, another sees behind a collective of the group that both have called.
// Lifetime    freed when every rank has let go of it, also after the group has been left. A rank that died
//             never lets go: its job's memory goes with the job.
// Fails       Mismatch where ranks ask for different sizes; SystemError when it cannot be reserved;
//             otherwise as all_reduce.
//
// What each rank allocated with allocate_shared() is seen by the others, too: a rank tells them the place of
// its memory by any message, and memory_of() says where this process sees it. Neither communicates.
//
//   const auto place = group.backend().place_of(mine.get());
//   ...                                                      // all ranks exchange their places
//   const auto theirs = group.backend().memory_of(rank, place_of_that_rank, bytes);
#pragma once

#include <cstddef>
#include <memory>

#include "lockstep/base/visibility.h"
#include "lockstep/comm/process_group.h"

namespace lockstep {
namespace LOCKSTEP_PUBLIC comm {

std::shared_ptr<void> allocate_common(const ProcessGroup& group, std::size_t bytes);

}  // namespace comm
}  // namespace lockstep

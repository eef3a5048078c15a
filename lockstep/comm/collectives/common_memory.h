// allocate_common: one piece of memory that all ranks of a group share, if they are on one machine.
//
//   const std::shared_ptr<void> table = comm::allocate_common(world, 4096);
//   if (table == nullptr) ...                        // ranks on several machines, or another backend
//   if (world.rank() == 0) fill(table.get());
//   comm::barrier(world);                            // now all ranks can read what rank 0 wrote
//
// Result      64-byte aligned and zeroed; each rank has its own address for it. Null on every rank if the
//             backend's ranks have no memory in common; only `shm`, `thread` and `self` have.
// Collective  every rank of `group`, with the same number of bytes, in the same order of calls. Blocks until
//             all have called.
// Order       a rank sees another rank's writes after a collective of the group that both have called.
// Lifetime    freed when every rank has released it, which may be after it left the group. A rank that died
//             never releases it; then the memory lives as long as the job.
// Fails       Mismatch if ranks ask for different sizes; SystemError if the memory cannot be reserved;
//             otherwise like all_reduce.
//
// Other ranks can also access memory that a rank allocated with allocate_shared(): the rank sends them its
// place in any message, and memory_of() returns this process's address for it. Neither function communicates.
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

// Ranks as processes of an MPI job, over messages of MPI: Open MPI or MPICH, loaded when the first group is
// made.
//
//   mpirun -n 4 ./train --backend mpi                          // or LOCKSTEP_BACKEND=mpi, or srun --mpi=...
//   init_process_group("mpi");
//
// What        The schedules, tags, groups, dtypes, operators, bits and errors are those of tcp: MPI moves the
//             bytes and nothing else, so it does not matter that it has no bfloat16 and fixes no order of its
//             sums.
// Which       mpi/library.h. `lockstep info` lists the modules found.
// Threads     One thread of ours calls MPI, and callers under the same lock. Where this library initialises
//             MPI, it asks for MPI_THREAD_MULTIPLE and takes MPI_THREAD_SERIALIZED, too; in a program that
//             has initialised MPI itself, less than MPI_THREAD_MULTIPLE is refused.
// Beginning   Collective over the meeting's ranks; the first time also over MPI_COMM_WORLD, which is
//             duplicated once.
// End         What this library initialised it finalises when the process ends: MPI waits there for all
//             ranks. If a group has failed, it waits 5 s and then ends the job with MPI_Abort.
// Death       of a rank ends the job: mpirun and srun kill the others, because MPI does not go on without it.
//             A rank that stops is named when the timeout has passed.
// Throws      InvalidArgument, on all ranks: no module, ranks over different MPIs, a job that MPI has not
//             started, an MPI without threads. Timeout and PeerLost as the meeting does.
#pragma once

#include <memory>
#include <string>

#include "lockstep/comm/backends/messages/carrier.h"
#include "lockstep/comm/backends/mpi/module.h"

namespace lockstep {

messages::Connections connect_mpi(Meeting& meeting, const GroupOptions& options, Deadline deadline);
inline constexpr messages::Carrier MPI_CARRIER{"mpi", "hierarchical+mpi", connect_mpi};

// MPI_COMM_WORLD's duplicate; initialises MPI. Throws InvalidArgument and Timeout of this rank alone.
std::shared_ptr<mpi::Communicator> mpi_world(Deadline deadline);
// The duplicate of a program's communicator, given as MPI_Comm at `handle` or, if that is null, as Fortran's.
struct MpiHandle {
  const void* handle = nullptr;
  std::size_t size = 0;  // of the MPI_Comm
  int fortran = 0;
};
std::shared_ptr<mpi::Communicator> mpi_duplicate(const MpiHandle& handle, Deadline deadline);
// Over a communicator that has all ranks of the meeting.
messages::Connections connect_mpi(Meeting& meeting, const std::shared_ptr<mpi::Communicator>& communicator,
                                  Deadline deadline);

}  // namespace lockstep

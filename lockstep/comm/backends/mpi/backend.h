// mpi: ranks as processes of an MPI job, over messages of MPI. Open MPI or MPICH is loaded when the first
// group is made.
//
//   mpirun -n 4 ./train --backend mpi                          // or LOCKSTEP_BACKEND=mpi, or srun --mpi=...
//   init_process_group("mpi");
//
// What        The schedules, tags, groups, dtypes, operators, bits and errors are those of tcp. MPI moves
//             bytes and does nothing else. So it does not matter that MPI has no bfloat16 and fixes no order
//             of its sums.
// Which       mpi/library.h. `lockstep info` lists the modules found.
// Threads     One thread of Lockstep calls MPI, and so do callers, under one lock. If Lockstep initialises
//             MPI, it asks for MPI_THREAD_MULTIPLE and accepts MPI_THREAD_SERIALIZED, too. If the program has
//             initialised MPI, less than MPI_THREAD_MULTIPLE is refused.
// Beginning   Collective over the meeting's ranks. The first time it is also collective over MPI_COMM_WORLD,
//             which is duplicated once.
// End         Lockstep finalises MPI at the end of the process if it has initialised it. MPI waits there for
//             all ranks. If a group has failed, it waits 5 s and then ends the job with MPI_Abort.
// Death       of a rank ends the job: mpirun and srun kill the other ranks, because MPI cannot go on without
//             one. A stopped rank is named when the timeout has passed.
// Throws      InvalidArgument, on all ranks: there is no module, ranks use different MPIs, MPI has not
//             started the job, or it has no threads. Timeout and PeerLost as the meeting throws them.
#pragma once

#include <memory>
#include <string>

#include "lockstep/comm/backends/messages/carrier.h"
#include "lockstep/comm/backends/mpi/module.h"

namespace lockstep {

messages::Connections connect_mpi(Meeting& meeting, const GroupOptions& options, Deadline deadline);
inline constexpr messages::Carrier MPI_CARRIER{"mpi", "hierarchical+mpi", connect_mpi};

// Returns MPI_COMM_WORLD's duplicate; initialises MPI. Throws InvalidArgument and Timeout on this rank alone.
std::shared_ptr<mpi::Communicator> mpi_world(Deadline deadline);
// A program's communicator: the MPI_Comm at `handle`, or Fortran's handle if that is null.
struct MpiHandle {
  const void* handle = nullptr;
  std::size_t size = 0;  // size of an MPI_Comm in the program
  int fortran = 0;
};
std::shared_ptr<mpi::Communicator> mpi_duplicate(const MpiHandle& handle, Deadline deadline);
// Connects over a communicator that has all ranks of the meeting.
messages::Connections connect_mpi(Meeting& meeting, const std::shared_ptr<mpi::Communicator>& communicator,
                                  Deadline deadline);

}  // namespace lockstep

// For a program that has called MPI itself and owns a communicator: its ranks become the job.
//
//   int provided;
//   MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);     // Lockstep calls MPI from a thread of
//                                                                      // its own
//   MPI_Comm half;
//   MPI_Comm_split(MPI_COMM_WORLD, colour, 0, &half);
//   lockstep::init_process_group_from_mpi(half);  // as init_process_group("mpi"), with half's ranks
//   ... DistributedDataParallel, all_reduce, barrier: all as in any other job ...
//   lockstep::destroy_process_group();
//   MPI_Finalize();
//
// From Fortran, the integer handle (comm, or comm%MPI_VAL of mpi_f08) goes to
// init_process_group_from_mpi_fortran(). examples/mpi_host has a host in C and one in Fortran.
//
// This header needs no mpi.h, and the library links no MPI: the module of the MPI that the program was linked
// with is loaded (comm/backends/mpi/library.h). It duplicates the communicator once in the communicator's
// life, so messages of the program and of Lockstep never meet.
//
// Who         every rank of the communicator; blocks until all are here or the timeout has passed.
// Throws      InvalidArgument: already initialised, MPI not initialised, without MPI_THREAD_MULTIPLE or
//             finalised already, no module of this MPI, a handle that is no intracommunicator; Timeout naming
//             who did not come.
// End         The program calls MPI_Finalize itself, after destroy_process_group(). If it comes first, what
//             Lockstep still has under way ends there.
// Failures    are those of any group while the ranks live. A rank that dies takes the job with it, as MPI
//             does.
#pragma once

#include <cstddef>

#include "lockstep/base/visibility.h"
#include "lockstep/job/job.h"

namespace LOCKSTEP_PUBLIC lockstep {
namespace detail {

// `handle` points to an MPI_Comm of `size` bytes.
void init_from_mpi_handle(const void* handle, std::size_t size, const InitOptions& options);

}  // namespace detail

// Options: timeout and warn_after; the others have no meaning here and are refused.
template <typename Communicator>
void init_process_group_from_mpi(Communicator communicator, const InitOptions& options = {}) {
  detail::init_from_mpi_handle(&communicator, sizeof communicator, options);
}
void init_process_group_from_mpi_fortran(int communicator, const InitOptions& options = {});

}  // namespace lockstep

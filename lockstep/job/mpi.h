// init_process_group_from_mpi: for a program that has called MPI itself. The ranks of its communicator become
// the job.
//
//   int provided;
//   MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);     // Lockstep calls MPI from its own
//                                                                      // thread
//   MPI_Comm half;
//   MPI_Comm_split(MPI_COMM_WORLD, colour, 0, &half);
//   lockstep::init_process_group_from_mpi(half);  // like init_process_group("mpi"), with half's ranks
//   ... DistributedDataParallel, all_reduce, barrier: all like in any other job ...
//   lockstep::destroy_process_group();
//   MPI_Finalize();
//
// From Fortran, the integer handle (comm, or comm%MPI_VAL of mpi_f08) goes to
// init_process_group_from_mpi_fortran(). examples/mpi_host has a host in C and one in Fortran.
//
// This header needs no mpi.h, and the library links no MPI. It loads the module for the MPI that the program
// was linked with (comm/backends/mpi/library.h). It duplicates each communicator once, so messages of the
// program and of Lockstep never mix.
//
// Who         every rank of the communicator. Blocks until all ranks have come or the timeout has passed.
// Throws      InvalidArgument: already initialised; MPI not initialised, without MPI_THREAD_MULTIPLE or
//             finalised; no module for this MPI; a handle that is not an intracommunicator. Timeout that
//             names the missing ranks.
// End         the program calls MPI_Finalize itself, after destroy_process_group(). After the last group
//             Lockstep's thread calls MPI no more, also while wrappers still hold the group. If MPI_Finalize
//             comes first, Lockstep's pending work ends there, and MPICH 4.0 may abort the program with
//             "Device or resource busy": it destroys a mutex that a call on another thread still holds.
// Failures    like in any group while the ranks live. A rank that dies ends the whole job, as in MPI.
#pragma once

#include <cstddef>

#include "lockstep/base/visibility.h"
#include "lockstep/job/job.h"

namespace LOCKSTEP_PUBLIC lockstep {
namespace detail {

// `handle` points to an MPI_Comm of `size` bytes.
void init_from_mpi_handle(const void* handle, std::size_t size, const InitOptions& options);

}  // namespace detail

// Options: timeout, warn_after and virtual_ranks. Setting init_method, rank, world_size or store throws.
template <typename Communicator>
void init_process_group_from_mpi(Communicator communicator, const InitOptions& options = {}) {
  detail::init_from_mpi_handle(&communicator, sizeof communicator, options);
}
void init_process_group_from_mpi_fortran(int communicator, const InitOptions& options = {});

}  // namespace lockstep

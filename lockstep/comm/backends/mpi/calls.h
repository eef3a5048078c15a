// The lock around every call of MPI in this process, and whether MPI may be called still. For the module
// alone.
//
//   const std::lock_guard lock(calls());
//   if (!over) MPI_Isend(...);
#pragma once
// NOLINTBEGIN: the two MPIs define the same names as pointers, as numbers and as macros of casts

#include <mpi.h>

#include <mutex>
#include <string>

namespace lockstep::mpi {

std::mutex& calls();

// Guarded by calls():
inline bool over = false;       // MPI is being finalised: nothing is sent or received any more,
inline bool finalized = false;  // and nothing of MPI may be called

std::string error_text(const char* call, int code);

}  // namespace lockstep::mpi
// NOLINTEND

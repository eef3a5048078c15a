// The lock around every call of MPI in this process, and whether MPI may still be called. For the module
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
inline bool over = false;       // MPI is being finalised: no message is sent or received any more
inline bool finalized = false;  // no function of MPI may be called any more

std::string error_text(const char* call, int code);

}  // namespace lockstep::mpi
// NOLINTEND

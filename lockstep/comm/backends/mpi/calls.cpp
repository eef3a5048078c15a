// NOLINTBEGIN: the two MPIs define the same names as pointers, as numbers and as macros of casts
#include "lockstep/comm/backends/mpi/calls.h"

#include <array>

namespace lockstep::mpi {

std::mutex& calls() {
  static auto* const instance = new std::mutex;  // outlives static destructors
  return *instance;
}

std::string error_text(const char* call, int code) {
  std::array<char, MPI_MAX_ERROR_STRING + 1> text = {};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  return std::string(call) + ": " + text.data();
}

}  // namespace lockstep::mpi
// NOLINTEND

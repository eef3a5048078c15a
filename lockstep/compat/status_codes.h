// The status codes that TensorFlow (TF_Code) and XLA (XLA_FFI_Error_Code) have in common, and which of them
// an error of the C interface is.
//
//   if (code != LOCKSTEP_OK) throw Failure{status_code_of(code), lockstep_error_text()};
#pragma once

#include "lockstep/c/error.h"

namespace lockstep::compat {

inline constexpr int OK = 0, INVALID_ARGUMENT = 3, DEADLINE_EXCEEDED = 4, FAILED_PRECONDITION = 9,
                     ABORTED = 10, INTERNAL = 13, UNAVAILABLE = 14;

inline int status_code_of(int code) {
  switch (code) {
    case LOCKSTEP_ERROR_INVALID_ARGUMENT:
    case LOCKSTEP_ERROR_INVALID_HANDLE: return INVALID_ARGUMENT;
    case LOCKSTEP_ERROR_TIMEOUT: return DEADLINE_EXCEEDED;
    case LOCKSTEP_ERROR_PEER_LOST: return UNAVAILABLE;
    case LOCKSTEP_ERROR_MISMATCH:
    case LOCKSTEP_ERROR_NOT_INITIALIZED: return FAILED_PRECONDITION;
    case LOCKSTEP_ERROR_ABORTED: return ABORTED;
    default: return INTERNAL;
  }
}

}  // namespace lockstep::compat

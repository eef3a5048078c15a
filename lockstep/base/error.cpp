#include "lockstep/base/error.h"

#include <cstring>

namespace lockstep {

SystemError::SystemError(const std::string& message, int error_number)
    : Error(ErrorCode::SYSTEM, message + ": " + std::strerror(error_number)), error_number_(error_number) {}

void throw_error(ErrorCode code, const std::string& message, int peer) {
  switch (code) {
    case ErrorCode::INVALID_ARGUMENT: throw InvalidArgument(message);
    case ErrorCode::TIMEOUT: throw Timeout(message);
    case ErrorCode::PEER_LOST: throw PeerLost(message, peer);
    case ErrorCode::MISMATCH: throw Mismatch(message);
    case ErrorCode::ABORTED: throw Aborted(message);
    case ErrorCode::STORE: throw StoreError(message);
    case ErrorCode::FORMAT: throw FormatError(message);
    case ErrorCode::BACKEND: throw DistBackendError(message);
    case ErrorCode::NONE:
    case ErrorCode::SYSTEM:
    case ErrorCode::INTERNAL:
    case ErrorCode::SPAWN: break;
  }
  throw Error(code, message);
}

}  // namespace lockstep

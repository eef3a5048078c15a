#include "lockstep/c/error.h"

#include "lockstep/base/log.h"
#include "lockstep/c/boundary.h"
#include "lockstep/c/last_failure.h"

using lockstep::c::guarded;
using lockstep::c::last_failure;

const char* lockstep_error_text(void) { return last_failure().text; }
int lockstep_error_peer(void) { return last_failure().peer; }
int lockstep_error_number(void) { return last_failure().number; }

const char* lockstep_code_name(int code) {
  switch (code) {
    case LOCKSTEP_OK: return "ok";
    case LOCKSTEP_ERROR_INVALID_ARGUMENT: return "invalid argument";
    case LOCKSTEP_ERROR_TIMEOUT: return "timeout";
    case LOCKSTEP_ERROR_PEER_LOST: return "peer lost";
    case LOCKSTEP_ERROR_MISMATCH: return "mismatch";
    case LOCKSTEP_ERROR_ABORTED: return "aborted";
    case LOCKSTEP_ERROR_STORE: return "store";
    case LOCKSTEP_ERROR_FORMAT: return "format";
    case LOCKSTEP_ERROR_SYSTEM: return "system";
    case LOCKSTEP_ERROR_INTERNAL: return "internal";
    case LOCKSTEP_ERROR_SPAWN: return "spawn";
    case LOCKSTEP_ERROR_BACKEND: return "backend";
    case LOCKSTEP_ERROR_INVALID_HANDLE: return "invalid handle";
    case LOCKSTEP_ERROR_NOT_INITIALIZED: return "not initialized";
    case LOCKSTEP_ERROR_OUT_OF_MEMORY: return "out of memory";
    default: return "unknown code";
  }
}

const char* lockstep_version(void) { return LOCKSTEP_VERSION; }
int lockstep_c_version(void) { return 1; }

int lockstep_set_log_sink(void (*sink)(int level, const char* line, void* context), void* context) {
  return guarded("lockstep_set_log_sink", [&] {
    if (sink == nullptr) return lockstep::set_log_sink({});
    lockstep::set_log_sink([sink, context](lockstep::LogLevel level, const std::string& line) {
      sink(static_cast<int>(level), line.c_str(), context);
    });
  });
}

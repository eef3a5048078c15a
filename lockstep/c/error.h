// Errors of the C interface: a code for the program, a text for people.
//
//   const int code = lockstep_barrier(LOCKSTEP_WORLD, NULL);
//   if (code == LOCKSTEP_ERROR_PEER_LOST) save_and_leave(lockstep_error_peer());
//   if (code != LOCKSTEP_OK) fprintf(stderr, "%s: %s\n", lockstep_code_name(code), lockstep_error_text());
//
// Text        names rank, group, operation, number, the expected state and the remedy. It belongs to the last
//             call of this thread that failed; a call that succeeds leaves it. It is valid until the next
//             failure on this thread.
// Groups      an error of INVALID_ARGUMENT or INVALID_HANDLE is found before anything is sent, and the group
//             stays usable. TIMEOUT, PEER_LOST, MISMATCH and ABORTED close the group: later calls on it
//             return the same code and text.
#pragma once

#include "lockstep/c/types.h"

// NOLINTBEGIN(readability-identifier-naming): C
enum lockstep_code {
  LOCKSTEP_OK = 0,
  LOCKSTEP_ERROR_INVALID_ARGUMENT = 1,  // the caller's mistake, found before anything was sent
  LOCKSTEP_ERROR_TIMEOUT = 2,           // no progress within the deadline
  LOCKSTEP_ERROR_PEER_LOST = 3,         // a rank died, left, or closed its connection
  LOCKSTEP_ERROR_MISMATCH = 4,          // ranks made different calls
  LOCKSTEP_ERROR_ABORTED = 5,           // the group was aborted or closed by this program
  LOCKSTEP_ERROR_STORE = 6,             // the meeting of the ranks, or a key-value store
  LOCKSTEP_ERROR_FORMAT = 7,            // bytes do not have the expected format
  LOCKSTEP_ERROR_SYSTEM = 8,            // the operating system refused; lockstep_error_number()
  LOCKSTEP_ERROR_INTERNAL = 9,          // a bug of Lockstep
  LOCKSTEP_ERROR_SPAWN = 10,            // a process that C++'s spawn() started has failed
  LOCKSTEP_ERROR_BACKEND = 11,          // the library below a backend reported an error
  // Of the C interface alone:
  LOCKSTEP_ERROR_INVALID_HANDLE = 100,   // null, freed, or of another kind
  LOCKSTEP_ERROR_NOT_INITIALIZED = 101,  // LOCKSTEP_WORLD before lockstep_init() or after lockstep_shutdown()
  LOCKSTEP_ERROR_OUT_OF_MEMORY = 102
};
// NOLINTEND(readability-identifier-naming)

LOCKSTEP_C_API const char* lockstep_error_text(void);  // "" before the first failure
// The rank within the group that a PEER_LOST names; -1 for other errors.
LOCKSTEP_C_API int lockstep_error_peer(void);
// The errno of a SYSTEM error; 0 for other errors.
LOCKSTEP_C_API int lockstep_error_number(void);
// "peer lost" for LOCKSTEP_ERROR_PEER_LOST; "unknown code" for a number that is none.
LOCKSTEP_C_API const char* lockstep_code_name(int code);

// The library's version, such as "0.1.0", and the newest version N of LOCKSTEP_C_N whose functions it has.
LOCKSTEP_C_API const char* lockstep_version(void);
LOCKSTEP_C_API int lockstep_c_version(void);

// NOLINTNEXTLINE(readability-identifier-naming): C
enum lockstep_log_level { LOCKSTEP_LOG_INFO = 0, LOCKSTEP_LOG_WARNING = 1, LOCKSTEP_LOG_ERROR = 2 };

// The library never prints: its few warnings go to the sink. NULL: they go nowhere. Set it before any group
// exists. Under a launcher, lockstep_init() makes standard error the sink if there is none. Any thread may
// call the sink, which must not call the library.
LOCKSTEP_C_API int lockstep_set_log_sink(void (*sink)(int level, const char* line, void* context),
                                         void* context);

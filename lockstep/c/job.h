// The job of this process: joining it, leaving it, and the numbers of its ranks.
//
//   int rank = 0, size = 0, nodes = 0;
//   lockstep_init_options options = LOCKSTEP_INIT_OPTIONS;
//   options.backend = "tcp";
//   options.timeout_ms = 60000;
//   if (lockstep_init(&options) != LOCKSTEP_OK) fail(lockstep_error_text());  // NULL: all defaults
//   lockstep_rank(LOCKSTEP_WORLD, &rank);
//   lockstep_size(LOCKSTEP_WORLD, &size);
//   lockstep_node_count(&nodes);
//   lockstep_shutdown();                                      // optional: leaving main does the same
//
// The same program runs alone, under `lockstep run`, torchrun, mpirun and srun, and with RANK, WORLD_SIZE,
// MASTER_ADDR and MASTER_PORT set by hand. lockstep/job/job.h has the rules.
//
// Who         lockstep_init: every process of the job, with the same backend.
// Blocks      lockstep_init: until all ranks are here or the timeout has passed; the text then names the
//             ranks that are missing. The other functions do not block.
#pragma once

#include "lockstep/c/types.h"

// Zero and NULL mean the default everywhere but in rank and world_size, where -1 does.
// NOLINTBEGIN(modernize-use-using,readability-identifier-naming): C
typedef struct lockstep_init_options {
  size_t struct_size;       // set by LOCKSTEP_INIT_OPTIONS
  const char* backend;      // a name that `lockstep info` lists; default "auto"
  const char* init_method;  // "env://", "tcp://10.0.0.1:29500", "file:///path"; default: the environment
  int rank;                 // both or neither; they override the environment
  int world_size;
  lockstep_store store;   // meet over this store, instead of init_method
  int64_t timeout_ms;     // of a wait, from the last progress; default $LOCKSTEP_TIMEOUT or 30 minutes
  int64_t warn_after_ms;  // then a wait names the ranks it waits for; default $LOCKSTEP_WARN_AFTER or 5 s
  int virtual_ranks;      // the same bits on any number of processes up to it; default: none
  int reserved;           // 0
} lockstep_init_options;
// NOLINTEND(modernize-use-using,readability-identifier-naming)
#define LOCKSTEP_INIT_OPTIONS \
  { sizeof(lockstep_init_options), NULL, NULL, -1, -1, 0, 0, 0, 0, 0 }

// INVALID_ARGUMENT: already initialised, an unknown backend, rank and world_size that do not fit, several
// machines without a secret. MISMATCH: ranks ask for different backends, ranks of two jobs have met, or two
// processes are one rank. STORE: another secret. SYSTEM: the store's port is taken. PEER_LOST and TIMEOUT
// while the ranks meet.
LOCKSTEP_C_API int lockstep_init(const lockstep_init_options* options);

// Leaves the job and all groups made in it. Pending work is dropped, and peers that still need this rank get
// PEER_LOST. Another lockstep_init() may follow. Handles stay to be freed. NOT_INITIALIZED: there is no job.
LOCKSTEP_C_API int lockstep_shutdown(void);

// 1 or 0.
LOCKSTEP_C_API int lockstep_is_initialized(void);

// The rank's number on this machine, and how many of the job's ranks are on it (LOCAL_RANK,
// LOCAL_WORLD_SIZE).
LOCKSTEP_C_API int lockstep_local_rank(int* rank);
LOCKSTEP_C_API int lockstep_local_size(int* size);
// Which of the job's machines this is, from 0, and how many there are. They are numbered by their first rank.
LOCKSTEP_C_API int lockstep_node_rank(int* rank);
LOCKSTEP_C_API int lockstep_node_count(int* count);

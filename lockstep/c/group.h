// Groups of ranks, and groups of processes that are no job.
//
//   int ranks[] = {0, 2}, mine = 0;
//   lockstep_group pair = 0, half = 0;
//   lockstep_new_group(ranks, 2, NULL, &pair);                    // every rank of the world calls it
//   lockstep_rank(pair, &mine);                                   // 0 or 1; -1 on rank 1
//   lockstep_barrier(pair, NULL);                                 // does nothing on rank 1
//   lockstep_group_free(pair);
//   lockstep_split_group(LOCKSTEP_WORLD, mine % 2, mine, NULL, &half);
//   lockstep_group_free(half);
//
// Who         lockstep_new_group: every rank of the world, members or not, with the same arguments in the
//             same order; with use_local_synchronization only the members. lockstep_split_group: every rank
//             of the parent. lockstep_connect: the processes of the new group.
// Blocks      these three, until all callers have called. The others do not block.
// Members     a process outside the group gets a handle all the same. Its rank is -1, and every collective on
//             it returns LOCKSTEP_OK at once and does nothing.
// Lifetime    until lockstep_group_free(). lockstep_shutdown() closes the groups of the job, whose calls then
//             return ABORTED. A group of lockstep_connect() is not the job's and ends only when it is freed.
#pragma once

#include "lockstep/c/types.h"

// Zero and NULL mean the default.
// NOLINTBEGIN(modernize-use-using,readability-identifier-naming): C
typedef struct lockstep_group_options {
  size_t struct_size;             // set by LOCKSTEP_GROUP_OPTIONS
  const char* name;               // for messages; default "group 1", "group 2", ..., or "PARENT/split"
  const char* backend;            // default: the world's; another one is set up over the world
  int64_t timeout_ms;             // default: the world's
  int use_local_synchronization;  // lockstep_new_group: the members alone call it
  int reserved;                   // 0
} lockstep_group_options;

typedef struct lockstep_connect_options {
  size_t struct_size;         // set by LOCKSTEP_CONNECT_OPTIONS
  const char* name;           // in messages and in the store, where it serves once; default "group"
  const char* backend;        // default "auto"
  int64_t timeout_ms;         // default 30 minutes
  int64_t warn_after_ms;      // default 5 s
  const void* secret;         // 32 bytes that the processes know and nobody else; default: none
  const char* local_address;  // where the others reach this process; default: chosen by the store
} lockstep_connect_options;
// NOLINTEND(modernize-use-using,readability-identifier-naming)
#define LOCKSTEP_GROUP_OPTIONS \
  { sizeof(lockstep_group_options), NULL, NULL, 0, 0, 0 }
#define LOCKSTEP_CONNECT_OPTIONS \
  { sizeof(lockstep_connect_options), NULL, NULL, 0, 0, NULL, NULL }

// The group of `count` ranks of the world, in ascending order whatever the order here.
LOCKSTEP_C_API int lockstep_new_group(const int* ranks, size_t count, const lockstep_group_options* options,
                                      lockstep_group* group);

// MPI_Comm_split: ranks that give the same color form a group, ordered by key, then by their rank in the
// parent. A negative color takes part in no group.
LOCKSTEP_C_API int lockstep_split_group(lockstep_group parent, int color, int key,
                                        const lockstep_group_options* options, lockstep_group* group);

// A group of processes that share a store, beside the job or without one; lockstep/job/connect.h is its
// contract. Its ranks count from 0 to size - 1 whatever the ranks of a job are.
LOCKSTEP_C_API int lockstep_connect(lockstep_store store, int rank, int size,
                                    const lockstep_connect_options* options, lockstep_group* group);

// Leaves the group. Members that still need this rank get PEER_LOST. LOCKSTEP_WORLD is left by
// lockstep_shutdown() and refused here.
LOCKSTEP_C_API int lockstep_group_free(lockstep_group group);

// Ends the group for every rank: all pending and later operations return ABORTED with the reason.
LOCKSTEP_C_API int lockstep_group_abort(lockstep_group group, const char* reason);

LOCKSTEP_C_API int lockstep_rank(lockstep_group group, int* rank);  // within the group; -1 if not a member
LOCKSTEP_C_API int lockstep_size(lockstep_group group, int* size);
// The ranks of the world in group order: `ranks` has room for as many as lockstep_size() says.
LOCKSTEP_C_API int lockstep_group_ranks(lockstep_group group, int* ranks);
// Between a rank of the world and one of the group; INVALID_ARGUMENT if there is no such rank.
LOCKSTEP_C_API int lockstep_group_rank(lockstep_group group, int global_rank, int* group_rank);
LOCKSTEP_C_API int lockstep_global_rank(lockstep_group group, int group_rank, int* global_rank);
// Texts are valid until this thread calls the same function again.
LOCKSTEP_C_API int lockstep_group_name(lockstep_group group, const char** name);
LOCKSTEP_C_API int lockstep_group_backend(lockstep_group group, const char** backend);

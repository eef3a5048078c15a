// Collectives for byte strings whose size only their owner knows. What arrives is a list of byte strings.
//
//   const void* bytes = NULL;
//   size_t size = 0;
//   lockstep_objects hosts = 0;
//   if (lockstep_all_gather_object(LOCKSTEP_WORLD, "node7", 5, &hosts) != LOCKSTEP_OK)
//     fail(lockstep_error_text());
//   lockstep_objects_get(hosts, 2, &bytes, &size);                     // of rank 2; valid until it is freed
//   lockstep_objects_free(hosts);
//
// Who         every rank of the group; of lockstep_send_object and lockstep_recv_object, the two ranks.
// Blocks      all but lockstep_objects_*, until the result is here.
// Ranks       roots and peers are ranks of the world, as in collectives.h. Lists are in the order of the
//             group.
// Lists       have one entry for each rank, or one. They are freed by lockstep_objects_free(). In a process
//             outside the group they are empty.
// Size        at most 1 GiB for an object. If an object is larger, its rank returns INVALID_ARGUMENT and the
//             receivers FORMAT with the sender and the reason. The group stays usable.
#pragma once

#include "lockstep/c/types.h"

// One entry for each rank, on every rank.
LOCKSTEP_C_API int lockstep_all_gather_object(lockstep_group group, const void* bytes, size_t size,
                                              lockstep_objects* objects);
// One entry for each rank on the root, none elsewhere.
LOCKSTEP_C_API int lockstep_gather_object(lockstep_group group, const void* bytes, size_t size, int root,
                                          lockstep_objects* objects);
// One entry: the root's object. Other ranks may give NULL and 0.
LOCKSTEP_C_API int lockstep_broadcast_object(lockstep_group group, const void* bytes, size_t size, int root,
                                             lockstep_objects* objects);
// One entry: this rank's of the root's objects. The root gives one for each rank; other ranks may give NULL.
LOCKSTEP_C_API int lockstep_scatter_object(lockstep_group group, const void* const* bytes,
                                           const size_t* sizes, int root, lockstep_objects* objects);

LOCKSTEP_C_API int lockstep_send_object(lockstep_group group, const void* bytes, size_t size, int destination,
                                        int tag);
// One entry. `source` may be LOCKSTEP_ANY_SOURCE; `from`, if not NULL, becomes the rank it came from.
LOCKSTEP_C_API int lockstep_recv_object(lockstep_group group, int source, int tag, int* from,
                                        lockstep_objects* objects);

LOCKSTEP_C_API int lockstep_objects_count(lockstep_objects objects, size_t* count);
LOCKSTEP_C_API int lockstep_objects_get(lockstep_objects objects, size_t index, const void** bytes,
                                        size_t* size);
LOCKSTEP_C_API int lockstep_objects_free(lockstep_objects objects);

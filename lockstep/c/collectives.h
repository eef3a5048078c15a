// The verbs. Each takes a group, buffers with a count and a dtype, and as its last argument where to put a
// lockstep_work.
//
//   float parts[8] = {0}, mine[2] = {1, 2};
//   size_t counts[4] = {2, 0, 5, 1};
//   lockstep_work work = 0;
//   lockstep_all_gather(LOCKSTEP_WORLD, mine, parts, 2, LOCKSTEP_FLOAT32, NULL);   // blocks; four ranks
//   lockstep_all_gatherv(LOCKSTEP_WORLD, mine, parts, counts, LOCKSTEP_FLOAT32, &work);  // does not block
//   lockstep_work_wait(work, 0);
//   lockstep_work_free(work);
//
// Who         every rank of the group, with the same dtype, operator, root and, where the verb has one count,
//             the same count, in the same order of calls. Of send and recv, the two ranks.
// Blocks      until the result is in this rank's buffers, if `work` is NULL. Otherwise the call returns at
//             once and `*work` becomes a handle (work.h); on an error it becomes 0.
// Counts      are elements of dtype. In a buffer for all ranks, the parts lie one behind the other in rank
//             order. Verbs with a v take the number of elements of each rank's part.
// Ranks       roots and peers are ranks of the world, also in a smaller group; lockstep_global_rank()
//             converts. A group of lockstep_connect() has ranks of its own.
// Memory      buffers must not overlap, unless said below. Any memory will do; lockstep_allocate_shared()
//             gives memory that is not copied.
// Fails       INVALID_ARGUMENT: a dtype, operator, rank, count or buffer that cannot be. MISMATCH: ranks made
//             different calls, or disagree about a size. PEER_LOST, TIMEOUT, ABORTED. The group is closed
//             after the last four.
// Result      SUM and AVG of floating point have the same bits on every rank, in every run and over every
//             backend (comm/collectives/all_reduce.h).
#pragma once

#include "lockstep/c/types.h"

// Returns when every rank has called it.
LOCKSTEP_C_API int lockstep_barrier(lockstep_group group, lockstep_work* work);

// A barrier that names the ranks that did not come within `timeout_ms` (0: 30 minutes): all of them, or the
// first if wait_all_ranks is 0. TIMEOUT on rank 0 and ABORTED with the same text on ranks that did come.
LOCKSTEP_C_API int lockstep_monitored_barrier(lockstep_group group, int64_t timeout_ms, int wait_all_ranks);

// The combination of all ranks' data, on every rank, in place.
LOCKSTEP_C_API int lockstep_all_reduce(lockstep_group group, void* data, size_t count, int dtype, int op,
                                       lockstep_work* work);
// Several buffers through one all_reduce: buffer b lies at data[b] and has counts[b] elements.
LOCKSTEP_C_API int lockstep_all_reduce_coalesced(lockstep_group group, void* const* data,
                                                 const size_t* counts, size_t buffers, int dtype, int op,
                                                 lockstep_work* work);

// The same on the root alone; other ranks' data stay as they are.
LOCKSTEP_C_API int lockstep_reduce(lockstep_group group, void* data, size_t count, int dtype, int op,
                                   int root, lockstep_work* work);

// The root's data, on every rank.
LOCKSTEP_C_API int lockstep_broadcast(lockstep_group group, void* data, size_t count, int dtype, int root,
                                      lockstep_work* work);

// Every rank's input, on every rank. `count` elements come from each rank. v: counts[r] elements come from
// rank r, and counts is the same on every rank.
LOCKSTEP_C_API int lockstep_all_gather(lockstep_group group, const void* input, void* output, size_t count,
                                       int dtype, lockstep_work* work);
LOCKSTEP_C_API int lockstep_all_gatherv(lockstep_group group, const void* input, void* output,
                                        const size_t* counts, int dtype, lockstep_work* work);

// Each rank gets the combination of the parts that are meant for it: `count` elements, v: counts[rank]. The
// output may be this rank's part of the input.
LOCKSTEP_C_API int lockstep_reduce_scatter(lockstep_group group, const void* input, void* output,
                                           size_t count, int dtype, int op, lockstep_work* work);
LOCKSTEP_C_API int lockstep_reduce_scatterv(lockstep_group group, const void* input, void* output,
                                            const size_t* counts, int dtype, int op, lockstep_work* work);

// Each rank has a part for every rank. `count` elements pass between any two ranks. v: input_counts[r]
// elements go to rank r, output_counts[r] come from it.
LOCKSTEP_C_API int lockstep_all_to_all(lockstep_group group, const void* input, void* output, size_t count,
                                       int dtype, lockstep_work* work);
LOCKSTEP_C_API int lockstep_all_to_allv(lockstep_group group, const void* input, const size_t* input_counts,
                                        void* output, const size_t* output_counts, int dtype,
                                        lockstep_work* work);

// Every rank's input, on the root. `output` and `counts` are looked at on the root alone. v: `count` is this
// rank's, counts[r] is rank r's.
LOCKSTEP_C_API int lockstep_gather(lockstep_group group, const void* input, void* output, size_t count,
                                   int dtype, int root, lockstep_work* work);
LOCKSTEP_C_API int lockstep_gatherv(lockstep_group group, const void* input, size_t count, void* output,
                                    const size_t* counts, int dtype, int root, lockstep_work* work);

// Each rank gets its part of what the root has. `input` and `counts` are looked at on the root alone.
LOCKSTEP_C_API int lockstep_scatter(lockstep_group group, const void* input, void* output, size_t count,
                                    int dtype, int root, lockstep_work* work);
LOCKSTEP_C_API int lockstep_scatterv(lockstep_group group, const void* input, const size_t* counts,
                                     void* output, size_t count, int dtype, int root, lockstep_work* work);

// One message to another rank. Messages with one tag arrive in the order sent. Two ranks that both send first
// may wait for each other (comm/collectives/point_to_point.h): give one of them a `work`.
LOCKSTEP_C_API int lockstep_send(lockstep_group group, const void* data, size_t count, int dtype,
                                 int destination, int tag, lockstep_work* work);
// `source` may be LOCKSTEP_ANY_SOURCE. `from`, if not NULL, becomes the rank that the message came from; with
// a `work` it stays, and lockstep_work_source() says it.
LOCKSTEP_C_API int lockstep_recv(lockstep_group group, void* data, size_t count, int dtype, int source,
                                 int tag, int* from, lockstep_work* work);

// Operations that ranks match by name, as Horovod does: each rank submits them in any order, from any thread.
//
//   float gradient[6] = {0};
//   const int64_t shape[2] = {2, 3};
//   lockstep_named average = 0;
//   lockstep_named_request request = LOCKSTEP_NAMED_REQUEST;
//   request.name = "layer1.weight";
//   request.dtype = LOCKSTEP_FLOAT32;
//   request.shape = shape;
//   request.dimensions = 2;
//   request.input = gradient;
//   request.output = gradient;
//   if (lockstep_named_init(NULL, NULL, 0) != LOCKSTEP_OK) fail(lockstep_error_text());
//   lockstep_named_submit(&request, 1, &average);
//   if (lockstep_named_finish(average) != LOCKSTEP_OK) fail(lockstep_error_text());
//   lockstep_named_shutdown();
//
// Who         lockstep_named_init: every rank of the job; it joins the job if lockstep_init() has not. Of a
//             name, every rank of its process set, with the same kind, dtype, operator, root, factors and
//             shape. ALLGATHER and ALLTOALL may differ in the first dimension.
// Blocks      init, wait, and the two functions that change process sets.
// Buffers     stay alive and untouched until poll or wait has said that the operation is done. Those of
//             ALLREDUCE and BROADCAST are the program's. ALLGATHER, ALLTOALL and REDUCESCATTER give memory
//             that belongs to the handle (lockstep_named_result).
// Fusion      reductions that are ready together run as one. It never shows in the result (named/engine.h).
// Fails       INVALID_ARGUMENT, before anything is sent: also for a name that is under way on this rank.
//             MISMATCH: the ranks disagree about a name; the text names it, the values and the ranks, and
//             other names go on. PEER_LOST, TIMEOUT and ABORTED end all operations by name.
// Threads     any.
#pragma once

#include "lockstep/c/types.h"

// NOLINTBEGIN(modernize-use-using,readability-identifier-naming): C
typedef int64_t lockstep_named;  // an operation that was submitted

enum lockstep_named_kind {
  LOCKSTEP_NAMED_ALLREDUCE = 0,
  LOCKSTEP_NAMED_ALLGATHER = 1,
  LOCKSTEP_NAMED_BROADCAST = 2,
  LOCKSTEP_NAMED_ALLTOALL = 3,
  LOCKSTEP_NAMED_REDUCESCATTER = 4,
  LOCKSTEP_NAMED_BARRIER = 5,
  LOCKSTEP_NAMED_JOIN = 6  // this rank has no more data; until all have joined, its share of sums is zero
};

// Horovod's numbers.
enum lockstep_named_op {
  LOCKSTEP_NAMED_AVERAGE = 0,  // of integers: the sum divided by the ranks, towards zero
  LOCKSTEP_NAMED_SUM = 1,
  LOCKSTEP_NAMED_ADASUM = 2,  // a power of two of ranks
  LOCKSTEP_NAMED_MIN = 3,
  LOCKSTEP_NAMED_MAX = 4,
  LOCKSTEP_NAMED_PRODUCT = 5
};

typedef struct lockstep_named_request {
  size_t struct_size;     // set by LOCKSTEP_NAMED_REQUEST
  const char* name;       // NULL: numbered by kind, in the order of this rank's nameless calls
  int kind;               // enum lockstep_named_kind
  int process_set;        // 0: all ranks
  int dtype;              // enum lockstep_dtype
  int op;                 // ALLREDUCE: enum lockstep_named_op. REDUCESCATTER: AVERAGE or SUM
  int root;               // BROADCAST: a rank of the job
  int dimensions;         // of shape
  const int64_t* shape;   // of the input
  const int64_t* splits;  // ALLTOALL: rows for each rank of the set; NULL: equal parts
  double prescale;        // multiplies the input
  double postscale;       // and the result
  const void* input;
  void* output;  // ALLREDUCE and BROADCAST; may be the input
} lockstep_named_request;
// NOLINTEND(modernize-use-using,readability-identifier-naming)
#define LOCKSTEP_NAMED_REQUEST \
  { sizeof(lockstep_named_request), NULL, 0, 0, 0, 0, 0, 0, NULL, NULL, 1.0, 1.0, NULL, NULL }

// `sets` process sets with the ids 1, 2, ...: counts[s] ranks each, one list behind the other.
LOCKSTEP_C_API int lockstep_named_init(const int* ranks, const size_t* counts, size_t sets);
// Leaves the job too, if lockstep_named_init() joined it.
LOCKSTEP_C_API int lockstep_named_shutdown(void);
LOCKSTEP_C_API int lockstep_named_is_initialized(void);  // 1 or 0

// More than one: they run together or not at all. Each gets a handle.
LOCKSTEP_C_API int lockstep_named_submit(const lockstep_named_request* requests, size_t count,
                                         lockstep_named* operations);
// An operation that is started again and again, for less work in each step: what can be done once is done by
// prepare, of an ALLREDUCE or a BROADCAST that has a name; its input and output may be NULL. start may follow
// when the operation is done or has failed, and may be called with other buffers each time; poll, wait and
// notify are about the last start. Free it after the last one. Not finish, which frees it each time.
//
//   float gradient[6] = {0};
//   const int64_t shape[1] = {6};
//   lockstep_named average = 0;
//   lockstep_named_request request = LOCKSTEP_NAMED_REQUEST;
//   request.name = "layer1.weight";
//   request.dtype = LOCKSTEP_FLOAT32;
//   request.shape = shape;
//   request.dimensions = 1;
//   lockstep_named_prepare(&request, &average);
//   for (int step = 0; step < 100; ++step) {
//     compute_a_little();
//     lockstep_named_start(average, gradient, gradient);
//     if (lockstep_named_wait(average) != LOCKSTEP_OK) fail(lockstep_error_text());
//   }
//   lockstep_named_free(average);
LOCKSTEP_C_API int lockstep_named_prepare(const lockstep_named_request* request, lockstep_named* operation);
LOCKSTEP_C_API int lockstep_named_start(lockstep_named operation, const void* input, void* output);
// `done` becomes 1 for an operation that is done or has failed. The call itself does not fail for the latter.
LOCKSTEP_C_API int lockstep_named_poll(lockstep_named operation, int* done);
// Returns the error of the operation if it failed, each time.
LOCKSTEP_C_API int lockstep_named_wait(lockstep_named operation);
// Waits for the operation and frees it, also if it failed; returns its error. Its result goes with it.
LOCKSTEP_C_API int lockstep_named_finish(lockstep_named operation);
// Calls ended(context) once, when the operation is done or has failed: at once if it has, else on the
// engine's thread, which it must not keep. wait then does not block. `is_awaited`, 1 or 0: begins a cycle at
// once, as wait does, instead of after the cycle time. At most once for a start.
LOCKSTEP_C_API int lockstep_named_notify(lockstep_named operation, void (*ended)(void* context),
                                         void* context, int is_awaited);
// After wait. `data` is valid until the handle is freed, and NULL where the output is the program's; `rows`
// is its first dimension, and the others are those of the input.
LOCKSTEP_C_API int lockstep_named_result(lockstep_named operation, void** data, int64_t* rows);
// After wait, of an ALLTOALL: how many rows came from each rank of the set.
LOCKSTEP_C_API int lockstep_named_received(lockstep_named operation, int64_t* splits);
// After wait, of a JOIN: the last rank that joined.
LOCKSTEP_C_API int lockstep_named_last_joined(lockstep_named operation, int* rank);
// Forgets the operation, whether it is done or not. Its buffers must live on until it is done.
LOCKSTEP_C_API int lockstep_named_free(lockstep_named operation);

// Every rank of the job calls these two with the same arguments. The ranks of a new set are ascending.
LOCKSTEP_C_API int lockstep_named_add_process_set(const int* ranks, size_t count, int* process_set);
LOCKSTEP_C_API int lockstep_named_remove_process_set(int process_set);
// This rank's number in the set, -1 outside; and how many ranks it has.
LOCKSTEP_C_API int lockstep_named_process_set(int process_set, int* rank, int* size);

// This rank's number among the ranks that have its local rank on other machines, how many those are, and
// whether every machine has equally many ranks. (lockstep_local_rank() and its neighbours have the rest.)
LOCKSTEP_C_API int lockstep_named_places(int* cross_rank, int* cross_size, int* is_homogeneous);

// Rank 0 writes what happens to each name as a trace of Chrome; other ranks do nothing.
LOCKSTEP_C_API int lockstep_named_start_timeline(const char* path, int mark_cycles);
LOCKSTEP_C_API int lockstep_named_stop_timeline(void);

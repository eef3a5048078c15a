// Work: an operation that was started and may still be running. Every verb makes one if its last argument is
// not NULL.
//
//   float first = 1, second = 2;
//   lockstep_work works[2] = {0, 0};
//   int done = 0;
//   lockstep_all_reduce(LOCKSTEP_WORLD, &first, 1, LOCKSTEP_FLOAT32, LOCKSTEP_SUM, &works[0]);
//   lockstep_all_reduce(LOCKSTEP_WORLD, &second, 1, LOCKSTEP_FLOAT32, LOCKSTEP_SUM, &works[1]);
//   while (done == 0) {
//     compute_a_little();
//     if (lockstep_work_test(works[1], &done) != LOCKSTEP_OK) fail(lockstep_error_text());
//   }
//   if (lockstep_work_wait(works[0], 0) != LOCKSTEP_OK) fail(lockstep_error_text());
//   lockstep_work_free(works[0]);
//   lockstep_work_free(works[1]);
//
// Blocks      lockstep_work_wait blocks until this rank's buffers hold the result, and helps with the
//             operation meanwhile. The others do not block. Works may be waited for in any order.
// Buffers     must stay alive and untouched until the work is done or has failed, or its group is closed.
//             That holds also for a work that was freed before, because later calls on the group complete it.
// Progress    over shared memory is made in calls only. A program that computes for long and then waits loses
//             nothing, because other ranks do not wait for it to copy.
// Threads     any thread may wait, one at a time.
#pragma once

#include "lockstep/c/types.h"

// Returns the error of the operation if it failed, each time. `timeout_ms` is the longest time without
// progress, 0 the group's; when it has passed, the group is closed with TIMEOUT.
LOCKSTEP_C_API int lockstep_work_wait(lockstep_work work, int64_t timeout_ms);

// Makes possible progress without waiting. `done` becomes 1 or 0. For a work that failed it becomes 1, and
// the result is the code of the failure.
LOCKSTEP_C_API int lockstep_work_test(lockstep_work work, int* done);

// The rank of the world that a finished receive came from; -1 for other works.
LOCKSTEP_C_API int lockstep_work_source(lockstep_work work, int* rank);

// Forgets the work, whether it is done or not. It neither waits nor cancels.
LOCKSTEP_C_API int lockstep_work_free(lockstep_work work);

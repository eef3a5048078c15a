// The C interface of Lockstep: every verb over (pointer, count, dtype), in C99. It is for C programs and for
// every language that calls C: Fortran (lockstep.f90 beside this file), Python, Julia, Rust. It lies in
// liblockstep_core.so and in the static library of the core, and needs neither C++ nor libtorch.
//
//   float loss = 0.25F;
//   int rank = 0;
//   lockstep_work work = 0;
//   if (lockstep_init(NULL) != LOCKSTEP_OK) fail(lockstep_error_text());
//   lockstep_rank(LOCKSTEP_WORLD, &rank);
//   lockstep_all_reduce(LOCKSTEP_WORLD, &loss, 1, LOCKSTEP_FLOAT32, LOCKSTEP_AVG, NULL);  // blocks
//   lockstep_broadcast(LOCKSTEP_WORLD, &loss, 1, LOCKSTEP_FLOAT32, 0, &work);  // does not block
//   if (lockstep_work_wait(work, 0) != LOCKSTEP_OK) fail(lockstep_error_text());
//   lockstep_work_free(work);
//   lockstep_shutdown();
//
//   cc -std=c99 program.c $(pkg-config --cflags --libs lockstep) -o program
//   lockstep run -n 4 ./program
//
// Codes       every function returns LOCKSTEP_OK or the kind of its error (error.h), except for the few whose
//             result cannot fail. lockstep_error_text() has the text. No C++ exception leaves a function.
// Handles     are numbers (types.h). A handle that was freed, is null or names another kind of thing is
//             LOCKSTEP_ERROR_INVALID_HANDLE.
// Order       every rank of a group makes the same calls on it in the same order, as in the C++ interface.
// Threads     functions may be called from any thread. Two threads that use one group must be ordered by the
//             caller.
// One job     C, C++ and Fortran code that use one liblockstep_core.so are in one job. LOCKSTEP_WORLD is what
//             lockstep::world() returns, whoever called init. handles.h passes groups between C and C++.
// ABI         symbols have the version LOCKSTEP_C_1. Functions, values and structs of it do not change.
#pragma once

#include "lockstep/c/collectives.h"  // IWYU pragma: export
#include "lockstep/c/error.h"        // IWYU pragma: export
#include "lockstep/c/group.h"        // IWYU pragma: export
#include "lockstep/c/job.h"          // IWYU pragma: export
#include "lockstep/c/memory.h"       // IWYU pragma: export
#include "lockstep/c/named.h"        // IWYU pragma: export
#include "lockstep/c/objects.h"      // IWYU pragma: export
#include "lockstep/c/store.h"        // IWYU pragma: export
#include "lockstep/c/types.h"        // IWYU pragma: export
#include "lockstep/c/work.h"         // IWYU pragma: export

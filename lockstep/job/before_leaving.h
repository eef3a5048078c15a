// before_leaving: registers a function that runs before this process leaves the job. A part of the library
// finishes its work there, such as a checkpoint that is still being written.
//
//   before_leaving(finish_my_work);       // may be repeated; the next leaving calls it once
//
// destroy_process_group() calls it; if the function throws, destroy_process_group() rethrows after it has
// left. exit() and quick_exit() call it too; there a failure goes to the log sink. A process that is killed
// or aborts does not call it.
//
// Threads: any.
#pragma once

#include "lockstep/base/visibility.h"

namespace LOCKSTEP_PUBLIC lockstep {

void before_leaving(void (*function)());

// For job.cpp: calls the registered functions.
void do_before_leaving();

}  // namespace lockstep

// What a part of the library does before this process leaves the job: a checkpoint that is still being
// written is finished.
//
//   before_leaving(finish_my_work);       // any number of times; it is called once for each leaving
//
// Called by destroy_process_group(), which throws on what the function throws, after it has left; and by
// exit() and quick_exit(), where a failure goes to the log sink. Not when the process is killed or aborts.
//
// Threads: any.
#pragma once

#include "lockstep/base/visibility.h"

namespace LOCKSTEP_PUBLIC lockstep {

void before_leaving(void (*function)());

// For job.cpp: calls them.
void do_before_leaving();

}  // namespace lockstep

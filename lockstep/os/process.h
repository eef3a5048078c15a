// Small facts about this process and machine that the rooms above may not ask the kernel for themselves.
#pragma once

#include <sys/types.h>

namespace lockstep {

pid_t current_pid();
int online_cpus();  // of the machine, whatever this process may use of them
void yield_cpu();   // lets another runnable thread have this core

}  // namespace lockstep

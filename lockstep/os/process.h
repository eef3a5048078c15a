// Small facts about this process and machine that the rooms above may not ask the kernel for themselves.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace lockstep {

pid_t current_pid();
pid_t parent_pid();  // of whoever adopted this process when its parent is gone

// The arguments this process was started with, its own name first.
std::vector<std::string> command_line();

// Ends this process as std::exit() does, exit handlers and all.
[[noreturn]] void end_process(int code);

int online_cpus();  // of the machine, whatever this process may use of them
void yield_cpu();   // lets another runnable thread have this core

}  // namespace lockstep

// Small facts about this process and machine. Rooms above os/ do not ask the kernel for them themselves.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "lockstep/base/visibility.h"

namespace LOCKSTEP_PUBLIC lockstep {

pid_t current_pid();
uid_t current_user();
pid_t parent_pid();  // of whoever adopted this process when its parent is gone

// The arguments this process was started with, its own name first.
std::vector<std::string> command_line();

// The name of this process's program, without folders.
std::string program_name();

// The file that this process runs: /proc/self/exe, which is right even when the file has been moved; without
// /proc the path by which it was started.
std::string program_file();

// Ends this process as std::exit() does, exit handlers and all.
[[noreturn]] void end_process(int code);

// Tells this core that the caller spins.
inline void relax_cpu() {
#ifdef __x86_64__
  __builtin_ia32_pause();
#endif
}
// Fetches a cache line before it is written, so that the write need not wait until other cores have given it
// up.
inline void prefetch_for_writing(const void* address) {
#ifdef __x86_64__
  asm volatile("prefetchw %0" ::"m"(*static_cast<const char*>(address)));
#else
  __builtin_prefetch(address, 1);
#endif
}
void yield_cpu();  // lets another runnable thread have this core

}  // namespace lockstep

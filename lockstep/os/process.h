// Small facts about this process. Rooms above os/ call these functions instead of the kernel.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "lockstep/base/visibility.h"

namespace LOCKSTEP_PUBLIC lockstep {

pid_t current_pid();
uid_t current_user();
pid_t parent_pid();  // the pid of the adopting process if the parent has ended

// The arguments that this process was started with, its own name first.
std::vector<std::string> command_line();

// The name of this process's program, without folders.
std::string program_name();

// The file that this process runs: /proc/self/exe, which stays right if the file is moved. Without /proc, the
// path by which it was started.
std::string program_file();

// Ends this process like std::exit(), with all exit handlers.
[[noreturn]] void end_process(int code);

// Tells the CPU that the caller spins.
inline void relax_cpu() {
#ifdef __x86_64__
  __builtin_ia32_pause();
#endif
}
// Fetches a cache line for writing. The later write need not wait until other CPUs have given the line up.
inline void prefetch_for_writing(const void* address) {
#ifdef __x86_64__
  asm volatile("prefetchw %0" ::"m"(*static_cast<const char*>(address)));
#else
  __builtin_prefetch(address, 1);
#endif
}
void yield_cpu();  // lets another runnable thread use this CPU

}  // namespace lockstep

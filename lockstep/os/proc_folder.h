// Where /proc shows a process. In a container, /proc may be mounted from an outer process namespace (the
// host's). Its numbers then differ from this process's, and a signal to one of them would hit a stranger.
//
//   std::ifstream file(proc_folder(4121) + "/comm");
//   for (const pid_t pid : numbers_in("/proc/self/task/71/children")) signal(pid_shown_as(pid));
//
// Without any /proc nothing is found here. os/descendants.h needs no /proc.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace lockstep {

enum class ProcView {
  OWN,    // of this process's namespace
  OUTER,  // of one around it
  NONE,   // there is no /proc that shows this process
};
ProcView proc_view();

// "/proc/4121"; empty when /proc does not show the process `pid`.
std::string proc_folder(pid_t pid);

// The process that /proc shows under that number, as this process's namespace counts; nullopt: it is not in
// it.
std::optional<pid_t> pid_shown_as(pid_t shown);

// The numbers of all processes that /proc shows and that belong to this process's namespace: as shown, and as
// it counts.
struct ShownProcess {
  pid_t shown = 0;
  pid_t pid = 0;
};
std::vector<ShownProcess> shown_processes();

}  // namespace lockstep

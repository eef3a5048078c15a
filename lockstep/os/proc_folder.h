// Finds processes in /proc. In a container, /proc may be mounted from an outer process namespace (the
// host's). Its pids then differ from this process's, and a signal to one of them would hit an unrelated
// process.
//
//   std::ifstream file(proc_folder(4121) + "/comm");
//   for (const pid_t shown : numbers_in("/proc")) use(pid_shown_as(shown));
//
// Without /proc, these functions find nothing. os/descendants.h works without /proc.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace lockstep {

enum class ProcView {
  OWN,    // it shows this process's namespace
  OUTER,  // it shows a namespace around this process's
  NONE,   // there is no /proc that shows this process
};
ProcView proc_view();

// "/proc/4121"; empty if /proc does not show the process `pid`.
std::string proc_folder(pid_t pid);

// The pid in this process's namespace of the process that /proc shows as `shown`; nullopt if it does not
// belong to the namespace.
std::optional<pid_t> pid_shown_as(pid_t shown);

// All processes of this process's namespace that /proc shows: with the pid that /proc shows, and with the pid
// in the namespace.
struct ShownProcess {
  pid_t shown = 0;
  pid_t pid = 0;
};
std::vector<ShownProcess> shown_processes();

}  // namespace lockstep

// The backends there are, in one table: a name, what it is for, and whether it can serve a group here.
//
//   for (const BackendInfo& backend : backends())
//     std::cout << backend.name << ": " << backend.description << "\n";
//
// `lockstep info` prints it; init_process_group() takes its names. A new backend is one row in registry.cpp;
// CONTRIBUTING.md has the other steps.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "lockstep/base/deadline.h"
#include "lockstep/base/visibility.h"
#include "lockstep/comm/meeting/meeting.h"
#include "lockstep/comm/process_group.h"

namespace LOCKSTEP_PUBLIC lockstep {

struct BackendInfo {
  std::string_view name;
  std::string_view description;
  // Makes the group of all ranks of the meeting.
  ProcessGroup (*make)(Meeting& meeting, const std::string& group_name, const GroupOptions& options,
                       Deadline deadline);
  bool serves_many;          // groups of more than one rank
  bool serves_cuda = false;  // besides CPU memory
};

std::span<const BackendInfo> backends();

// The row for `name`; "auto" is self for one rank and shm for more. Throws InvalidArgument that lists the
// names. `caller`: the function of the program, for that message.
const BackendInfo& find_backend(std::string_view name, int size,
                                std::string_view caller = "init_process_group");

// Which verbs each backend has for memory of each device, and what it refuses of them: the table of
// docs/backends.md, in Markdown. `lockstep info --backends` prints it, a test compares the two.
std::string backend_table();

// "cpu:hierarchical,cuda:nccl": one for each device; any other text is a name for the CPU's, or both
// ("nccl").
struct BackendChoice {
  std::string cpu = "auto";
  std::string cuda;  // "nccl" or "hierarchical+nccl", over the other; empty: none
};
// Throws InvalidArgument for what is neither; the names are find_backend()'s business.
BackendChoice choose_backends(std::string_view text, std::string_view caller = "init_process_group");

}  // namespace lockstep

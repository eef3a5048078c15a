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

// Returns the row for `name`; "auto" is self for one rank and shm for more. Throws InvalidArgument that lists
// the names. `caller` is the function of the program, for that message.
const BackendInfo& find_backend(std::string_view name, int size,
                                std::string_view caller = "init_process_group");

// The table of docs/backends.md, in Markdown: the verbs of each backend for the memory of each device, and
// its refusals. `lockstep info --backends` prints it, and a test compares it with the document.
std::string backend_table();

// "cpu:hierarchical,cuda:nccl" names one backend for each device. Any other text names the CPU's backend, or
// a backend for both ("nccl").
struct BackendChoice {
  std::string cpu = "auto";
  std::string cuda;  // "nccl" or "hierarchical+nccl", over the other; empty: none
};
// Throws InvalidArgument for a text of neither form. It does not check the names; find_backend() does.
BackendChoice choose_backends(std::string_view text, std::string_view caller = "init_process_group");

}  // namespace lockstep

// The backends there are, in one table: a name, what it is for, and whether it can serve a group here.
//
//   for (const BackendInfo& backend : backends()) std::cout << backend.name << ": " << backend.description << "\n";
//
// `lockstep info` prints it; init_process_group() takes its names. A new backend is one row in registry.cpp;
// CONTRIBUTING.md has the other steps.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "lockstep/base/deadline.h"
#include "lockstep/comm/meeting.h"
#include "lockstep/comm/process_group.h"

namespace lockstep {

struct BackendInfo {
  std::string_view name;
  std::string_view description;
  // Makes the group of all ranks of the meeting.
  ProcessGroup (*make)(Meeting& meeting, const std::string& group_name, const GroupOptions& options,
                       Deadline deadline);
  bool serves_many;  // groups of more than one rank
};

std::span<const BackendInfo> backends();

// The row for `name`; "auto" is self for one rank and shm for more. Throws InvalidArgument that lists the names.
const BackendInfo& find_backend(std::string_view name, int size);

}  // namespace lockstep

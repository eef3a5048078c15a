// Where the ranks of a RANKS_TEST get their groups from.
#pragma once

#include <string>
#include <vector>

#include "lockstep/comm/process_group.h"

namespace lockstep::harness {

void join_world(const std::string& backend);  // of processes: init_process_group()
void leave_world();                           // destroy_process_group(), if there is something to leave
const ProcessGroup& process_world();

std::vector<ProcessGroup> groups_of_threads(int ranks);  // group r is rank r's

}  // namespace lockstep::harness

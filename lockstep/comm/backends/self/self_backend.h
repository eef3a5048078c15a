// A group of one rank. Every collective is the identity, nothing is shared, and only bad arguments can fail.
#pragma once

#include "lockstep/comm/process_group.h"

namespace lockstep {

ProcessGroup make_self_group(const std::string& group_name);

}  // namespace lockstep

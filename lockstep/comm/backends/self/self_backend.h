// A group of one rank: every collective is the identity, nothing is shared, nothing can fail but arguments.
#pragma once

#include "lockstep/comm/process_group.h"

namespace lockstep {

ProcessGroup make_self_group(const std::string& group_name);

}  // namespace lockstep

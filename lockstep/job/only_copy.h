// Two copies of Lockstep's core in one process are two libraries that know nothing of each other: each would
// join a job of its own under the same rank. That comes about when a program links the static library and a
// plug-in brings another one, static or shared. The second copy that wants to join is refused.
//
//   refuse_second_copy("init_process_group");
//
// Who         init_process_group() and connect(), before they meet anybody. Costs one look at
// /proc/self/maps. Throws      InvalidArgument.
#pragma once

#include <string>

namespace lockstep {

void refuse_second_copy(const std::string& caller);

// The name of the memory by which a copy that has joined a job is seen.
inline constexpr const char* COPY_MARK = "lockstep-core";

}  // namespace lockstep

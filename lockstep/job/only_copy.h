// refuse_second_copy: refuses a second copy of Lockstep's core in one process. Two copies know nothing of
// each other, so each would join a job of its own under the same rank. This happens if a program links the
// static library and a plug-in brings another one, static or shared.
//
//   refuse_second_copy("init_process_group");
//
// Who         init_process_group() and connect(), before they meet other ranks. Reads /proc/self/maps.
// Throws      InvalidArgument.
#pragma once

#include <string>

namespace lockstep {

void refuse_second_copy(const std::string& caller);

// The name of the memory that marks a copy that has joined a job.
inline constexpr const char* COPY_MARK = "lockstep-core";

}  // namespace lockstep

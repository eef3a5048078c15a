// Groups that pass between C and C++ in one process.
//
//   const lockstep_group handle = c::handle_of(group);   // C++ lends its group to a library in C
//   train_in_c(handle);
//   lockstep_group_free(handle);                          // forgets the handle; the group stays open
//
//   const ProcessGroup same = c::group_of(LOCKSTEP_WORLD);  // lockstep::world()
//
// Lifetime    a handle of handle_of() lends. Freeing it does not leave the group, which its C++ owner does.
// Throws      group_of(): InvalidArgument for a handle that is null, was freed, or names no group, and for
//             LOCKSTEP_WORLD before init_process_group().
#pragma once

#include "lockstep/base/visibility.h"
#include "lockstep/c/types.h"
#include "lockstep/comm/process_group.h"

namespace lockstep {
namespace LOCKSTEP_PUBLIC c {

lockstep_group handle_of(const ProcessGroup& group);
ProcessGroup group_of(lockstep_group handle);

}  // namespace c
}  // namespace lockstep

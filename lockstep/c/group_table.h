// The groups behind the handles of the C interface.
//
//   comm::barrier(find_group(handle));
#pragma once

#include "lockstep/c/handle_table.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::c {

struct GroupEntry {
  ProcessGroup group;
  bool is_lent = false;  // its owner is C++, so freeing the handle does not leave it
};

HandleTable<GroupEntry>& groups();

// The group of a handle, or the world. Throws Failure with INVALID_HANDLE or NOT_INITIALIZED.
ProcessGroup find_group(lockstep_group handle);

}  // namespace lockstep::c

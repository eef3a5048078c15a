#include "lockstep/c/handles.h"

#include "lockstep/base/error.h"
#include "lockstep/c/group_table.h"

namespace lockstep::c {

lockstep_group handle_of(const ProcessGroup& group) { return groups().add({group, /*is_lent=*/true}); }

ProcessGroup group_of(lockstep_group handle) {
  try {
    return find_group(handle);
  } catch (const Failure& failure) {
    throw InvalidArgument(failure.what());
  }
}

}  // namespace lockstep::c

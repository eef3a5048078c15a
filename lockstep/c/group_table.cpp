#include "lockstep/c/group_table.h"

#include "lockstep/base/error.h"
#include "lockstep/job/job.h"

namespace lockstep::c {

HandleTable<GroupEntry>& groups() {
  static auto& table = *new HandleTable<GroupEntry>(HandleKind::GROUP);
  return table;
}

ProcessGroup find_group(lockstep_group handle) {
  if (handle != LOCKSTEP_WORLD) return groups().get(handle).group;
  try {
    return world();
  } catch (const InvalidArgument&) {
    throw Failure(LOCKSTEP_ERROR_NOT_INITIALIZED, "there is no job; call lockstep_init() first");
  }
}

}  // namespace lockstep::c

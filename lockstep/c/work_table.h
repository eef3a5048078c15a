// The works behind the handles of the C interface, and what all verbs have in common.
//
//   return verb("lockstep_barrier", group, work,
//               [](const ProcessGroup& group, bool async_op) { return comm::barrier(group, async_op); });
#pragma once

#include <utility>

#include "lockstep/c/group_table.h"
#include "lockstep/c/handle_table.h"
#include "lockstep/comm/collectives/check.h"
#include "lockstep/comm/work.h"

namespace lockstep::c {

HandleTable<Work>& works();

// `start` begins the operation on the group, and waits for it if the program gave no place for a work. It is
// not called in a process outside the group.
template <typename Start>
int verb(const char* function, lockstep_group handle, lockstep_work* work, const Start& start) noexcept {
  return guarded(function, [&] {
    if (work != nullptr) *work = 0;
    const ProcessGroup group = find_group(handle);
    Work made;
    if (comm::takes_part(function, group)) made = start(group, work != nullptr);
    if (work != nullptr) *work = works().add(std::move(made));
  });
}

}  // namespace lockstep::c

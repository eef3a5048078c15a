// The backends of this process that exist. At the end of a program, those that it did not destroy are left in
// order, so that the other ranks see a rank that left, and not one that died.
//
//   leave_all();                          // Python's atexit
//   c10::intrusive_ptr<GroupBackend> world = default_backend();
#pragma once

#include <c10/util/intrusive_ptr.h>

namespace lockstep::compat::torch_backend {

class GroupBackend;

// Called by the backend itself.
void list_open(GroupBackend* backend);
void unlist_open(GroupBackend* backend);

void leave_all();

// The backend of torch's default group, over which groups of some of its ranks are made. Null if there is
// none of ours.
void set_default_backend(const c10::intrusive_ptr<GroupBackend>& backend);
c10::intrusive_ptr<GroupBackend> default_backend();
// `backend` is the default group's no more, if it was.
void forget_default_backend(const GroupBackend* backend);

}  // namespace lockstep::compat::torch_backend

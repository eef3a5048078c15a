#include "lockstep/compat/c10d/open_backends.h"

#include <mutex>
#include <optional>
#include <set>

#include "lockstep/compat/c10d/backend.h"

namespace lockstep::compat::torch_backend {
namespace {

struct Open {
  std::mutex mutex;
  std::set<GroupBackend*> all;  // guarded by the mutex, as is:
  std::optional<c10::weak_intrusive_ptr<GroupBackend>> of_default_group;
};

// Never destroyed: a group may outlive main.
Open& open_ones() {
  static Open* const open = new Open;
  return *open;
}

}  // namespace

void list_open(GroupBackend* backend) {
  const std::lock_guard lock(open_ones().mutex);
  open_ones().all.insert(backend);
}

void unlist_open(GroupBackend* backend) {
  const std::lock_guard lock(open_ones().mutex);
  open_ones().all.erase(backend);
}

// A backend that ends meanwhile waits for the lock in its destructor.
void leave_all() {
  const std::lock_guard lock(open_ones().mutex);
  for (GroupBackend* const backend : open_ones().all) backend->leave();
}

void set_default_backend(const c10::intrusive_ptr<GroupBackend>& backend) {
  const std::lock_guard lock(open_ones().mutex);
  open_ones().of_default_group.emplace(backend);
}

c10::intrusive_ptr<GroupBackend> default_backend() {
  const std::lock_guard lock(open_ones().mutex);
  return open_ones().of_default_group ? open_ones().of_default_group->lock() : nullptr;
}

void forget_default_backend(const GroupBackend* backend) {
  const auto current = default_backend();
  const std::lock_guard lock(open_ones().mutex);
  if (current.get() == backend) open_ones().of_default_group.reset();
}

}  // namespace lockstep::compat::torch_backend

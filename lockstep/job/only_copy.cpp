#include "lockstep/job/only_copy.h"

#include <memory>
#include <mutex>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/os/kernel_features.h"
#include "lockstep/os/shared_memory.h"
#include "lockstep/os/unix_socket.h"

namespace lockstep {
namespace {

struct Mark {
  std::mutex mutex;
  std::shared_ptr<SharedMemory> memory;  // guarded by mutex; null: this copy has not joined
};

Mark& mark() {
  static auto* const instance = new Mark;  // outlives static destructors, like the job
  return *instance;
}

}  // namespace

// Each copy sets its mark before it looks for others. So if two copies join at once, at least one is refused.
void refuse_second_copy(const std::string& caller) {
  const std::lock_guard lock(mark().mutex);
  if (mark().memory != nullptr || !kernel_has(KernelFeature::MEMFD)) return;
  std::shared_ptr<SharedMemory> made;
  std::shared_ptr<SharedMemory> mine;
  try {
    made = SharedMemory::create(1, {.name = COPY_MARK, .huge_pages = false});
    mine = SharedMemory::adopt(duplicate(made->fd()));  // keeps the mapping, without a descriptor
  } catch (const SystemError&) {  // a limit of the user's; other code that needs memory files will report it
    return;
  }
  for (const std::byte* const found : mapped_memory_files(COPY_MARK)) {
    if (found == mine->data() || found == made->data()) continue;
    throw InvalidArgument(str(
        caller,
        ": another copy of Lockstep in this process has joined a job. A program and its plug-ins must use "
        "one copy: link all of them to the shared library (lockstep::core_shared) and none to the static "
        "one"));
  }
  mark().memory = std::move(mine);
}

}  // namespace lockstep

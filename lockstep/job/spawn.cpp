#include "lockstep/job/spawn.h"

#include <atomic>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/job/job.h"
#include "lockstep/job/spawn_child.h"
#include "lockstep/job/spawn_children.h"
#include "lockstep/os/process.h"

namespace lockstep {

SpawnContext::SpawnContext(std::unique_ptr<Children> children) : children_(std::move(children)) {}
SpawnContext::SpawnContext(SpawnContext&&) noexcept = default;
SpawnContext& SpawnContext::operator=(SpawnContext&&) noexcept = default;
SpawnContext::~SpawnContext() = default;

void SpawnContext::join() {
  if (children_) children_->join(Deadline::never());
}

bool SpawnContext::join(std::chrono::nanoseconds timeout) {
  return !children_ || children_->join(Deadline::in(timeout));
}

std::vector<pid_t> SpawnContext::pids() const { return children_ ? children_->pids() : std::vector<pid_t>(); }

SpawnContext spawn(int ranks, const std::function<void(int rank)>& fn, const SpawnOptions& options,
                   CallPlace here) {
  static std::atomic<unsigned> calls = 0;
  if (ranks < 1) throw InvalidArgument(str("spawn: at least one rank is needed, not ", ranks));
  if (!fn) throw InvalidArgument("spawn: the function is empty");
  SpawnCall call;
  call.number = calls++;
  call.ranks = ranks;
  call.parent = current_pid();
  call.place = str(here.file, ':', here.line);
  if (const auto wanted = spawned_for()) {
    replay(*wanted, call, fn);
    return SpawnContext(nullptr);
  }
  if (is_initialized()) {
    throw InvalidArgument(
        "spawn: this process has joined a job itself; call spawn() before init_process_group(), or "
        "destroy_process_group() first");
  }
  SpawnContext context(std::make_unique<SpawnContext::Children>(std::move(call)));
  if (options.join) context.join();
  return context;
}

}  // namespace lockstep

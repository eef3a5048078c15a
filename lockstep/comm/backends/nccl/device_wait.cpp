#include "lockstep/comm/backends/nccl/device_wait.h"

#include <algorithm>
#include <thread>

#include "lockstep/base/log.h"
#include "lockstep/base/naps.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/group/progress_clock.h"

namespace lockstep::nccl {
namespace {

constexpr std::uint64_t NO_PROGRESS = 0;

std::string unfinished(const Operation& operation, int rank, std::chrono::nanoseconds waited) {
  return str("NCCL has not finished ", operation.describe(), " on rank ", rank, " after ",
             std::chrono::duration<double>(waited).count(), " s");
}

// Logs a warning, or throws at the deadline.
void look_at_clock(ProgressClock& clock, RunningClock::time_point now, const Operation& operation,
                   const WatchedGroup& group) {
  const auto verdict = clock.look(now, NO_PROGRESS);
  if (verdict == ProgressClock::Verdict::GO_ON) return;
  const std::string text = unfinished(operation, group.hosts.rank(), clock.waited(now));
  if (verdict == ProgressClock::Verdict::TIMEOUT)
    throw Timeout(text + (is_message(operation.request().verb)
                              ? "; messages that wait for each other must be started together "
                                "(batch_isend_irecv), or before any of them is waited for"
                              : ", though all ranks have called it"));
  log(LogLevel::WARNING, str("group \"", group.name, "\": ", text));
}

}  // namespace

std::exception_ptr failure_of_hosts(Backend& hosts) {
  try {
    hosts.check_peers();
    return nullptr;
  } catch (const Error&) {
    return std::current_exception();
  }
}

// An operation that all ranks have called may still end although one rank has failed since. So it gets a last
// moment.
void await_device(Lanes& lanes, const Operation& operation, const WatchedGroup& group) {
  constexpr int TURNS = 100;
  constexpr std::chrono::microseconds SHORTEST{20};
  constexpr std::chrono::microseconds LONGEST{1000};
  constexpr std::chrono::milliseconds LAST_MOMENT{200};
  ProgressClock clock(group.options.timeout, group.options.warn_after);
  Naps naps;
  clock.look(naps.now(), NO_PROGRESS);
  auto pause = SHORTEST;
  std::exception_ptr lost;
  RunningClock::time_point lost_at;
  for (int turn = 0; !group.streams.is_done(operation.end()); ++turn) {
    if (turn < TURNS) {
      std::this_thread::yield();
      continue;
    }
    lanes.check();
    const auto now = naps.now();
    if (!lost) {
      lost = failure_of_hosts(group.hosts);
      lost_at = now;
    }
    if (lost && now - lost_at >= LAST_MOMENT) std::rethrow_exception(lost);
    look_at_clock(clock, now, operation, group);
    naps.sleep(pause);
    pause = std::min(LONGEST, pause * 2);
  }
}

}  // namespace lockstep::nccl

#include "lockstep/comm/backends/shared/pending_operations.h"

#include "lockstep/base/log.h"
#include "lockstep/comm/backends/shared/backoff.h"
#include "lockstep/comm/backends/shared/operation.h"
#include "lockstep/comm/group/progress_clock.h"

namespace lockstep::shared {
namespace {

// A waiting rank may look at the control segment without the lock. So the group must not become GONE
// meanwhile.
class WaitUnderWay {
 public:
  WaitUnderWay(Context& context, PendingOperations::Lock& lock) : context_(context), lock_(lock) {
    context_.begin_wait();
  }
  WaitUnderWay(const WaitUnderWay&) = delete;
  WaitUnderWay& operator=(const WaitUnderWay&) = delete;
  ~WaitUnderWay() {
    if (!lock_.owns_lock()) lock_.lock();
    context_.end_wait();
  }

 private:
  Context& context_;
  PendingOperations::Lock& lock_;
};

// After a sleep: checks whether the peers are alive, whether a warning is due, and whether the time is up.
void look_around(Context& context, ProgressClock& clock, Waitable& target) {
  const Diagnosis diagnosis = context.diagnosis();
  if (const auto lost = diagnosis.lost_peer(target)) context.record_failure(*lost);
  const auto now = ProgressClock::Time::clock::now();
  const auto verdict = clock.look(now, target.progress());
  if (verdict == ProgressClock::Verdict::TIMEOUT && !target.ready())
    context.record_failure(diagnosis.timeout(target, clock.timeout()));
  if (verdict == ProgressClock::Verdict::WARN) {
    log(LogLevel::WARNING, waiting_text(target.describe(), context.membership().place(), clock.waited(now),
                                        diagnosis.late_ranks(target)));
  }
}

}  // namespace

void PendingOperations::advance(std::size_t slices) {
  std::erase_if(operations_, [&](const auto& operation) { return operation->advance(slices); });
  context_.stage().tidy();
}

void PendingOperations::give_up() {
  for (const auto& operation : operations_) operation->give_up();
  operations_.clear();
}

void PendingOperations::wait(Lock& lock, Waitable& target, std::optional<std::chrono::nanoseconds> timeout) {
  const Membership& membership = context_.membership();
  ProgressClock clock(timeout.value_or(membership.options.timeout),
                      membership.options.warn_after);  // the clock starts at the first sleep
  std::uint64_t moved = target.progress();
  Backoff backoff(context_.size());
  const WaitUnderWay under_way(context_, lock);
  while (!target.ready()) {
    if (!context_.usable() && !target.ready()) context_.throw_unusable(target.describe());
    if (backoff.has_spun()) {
      // Large data come in pieces. A rank that sleeps between two pieces falls behind, so progress restarts
      // the spinning.
      if (const std::uint64_t current = target.progress(); current != moved) {
        moved = current;
        backoff.begin_again();
      }
    }
    lock.unlock();
    const bool slept = backoff.pause(context_.control(), [&] {
      const std::lock_guard guard(mutex_);
      return context_.failed() || target.ready();
    });
    if (slept) membership.own->help_groups();
    lock.lock();
    if (slept) look_around(context_, clock, target);
  }
}

}  // namespace lockstep::shared

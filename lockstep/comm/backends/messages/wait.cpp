#include "lockstep/comm/backends/messages/wait.h"

#include <algorithm>
#include <iterator>

#include "lockstep/base/log.h"
#include "lockstep/base/str.h"

namespace lockstep::messages {
namespace {

using Clock = Deadline::Clock;

// How often a waiting rank helps this process's other groups over shared memory, which have no thread of
// their own.
constexpr std::chrono::milliseconds HELP{1};
constexpr std::chrono::seconds LOOK{1};  // how often it looks for silent machines

// Returns the ranks at the end of the chain, which have not made this call. A rank that the operation
// exchanges data with may only be waiting for one of them.
std::vector<int> late_ranks(Core& core, const Operation& operation) {
  std::vector<int> direct = operation.transfers().receiving_from();
  for (const auto& more : {operation.transfers().sending_to(), operation.waiting_in_node()}) {
    std::copy_if(more.begin(), more.end(), std::back_inserter(direct),
                 [&](int r) { return std::find(direct.begin(), direct.end(), r) == direct.end(); });
  }
  if (!operation.is_collective()) return direct;
  auto late = core.calls().log().late(operation.sequence(), core.roster().rank(), direct);
  return late.empty() ? direct : late;
}

std::string describe_late(Core& core, const Operation& operation, const std::vector<int>& late) {
  if (std::find(late.begin(), late.end(), ANY_SOURCE) != late.end()) return "a message from any rank";
  return list_of_late(late, [&](int r) {
    const std::string last = core.calls().log().last_call_of(r);
    return core.roster().describe(r) + direction_of(operation, r) +
           (last.empty() ? "" : str(" (last collective call: ", last, ")"));
  });
}

}  // namespace

Wait::Wait(Core& core, Session& session, Operation& operation,
           std::optional<std::chrono::nanoseconds> timeout)
    : core_(core),
      session_(session),
      operation_(operation),
      clock_(timeout.value_or(core.roster().membership().options.timeout),
             core.roster().membership().options.warn_after),
      look_(Clock::now() + LOOK) {
  if (core.roster().node() && core.roster().node()->local() != nullptr)
    helper_.emplace(*core.roster().node());
}

void Wait::run() {
  session_.settle();
  while (operation_.is_pending()) {
    const auto now = Clock::now();
    if (!look_at_clock(now)) break;
    look_at_machines(now);
    core_.announce_if_due(now);
    session_.settle();
    if (helper_) help();
    if (!operation_.is_pending()) break;
    core_.roster().fabric().wait(session_, until(now));
    if (helper_ && operation_.is_pending()) help_other_groups();
  }
  core_.roster().fabric().turns().serve_pending();
}

// Returns false at the deadline.
bool Wait::look_at_clock(Time now) {
  switch (clock_.look(now, operation_.progress())) {
    case ProgressClock::Verdict::GO_ON: return true;
    case ProgressClock::Verdict::WARN:
      log(LogLevel::WARNING, waiting_text(operation_.describe(), core_.roster().place(), clock_.waited(now),
                                          describe_late(core_, operation_, late_ranks(core_, operation_))));
      return true;
    case ProgressClock::Verdict::TIMEOUT: break;
  }
  const std::vector<int> late = late_ranks(core_, operation_);
  core_.record(timed_out(core_.roster().rank(), clock_.timeout(), describe_late(core_, operation_, late),
                         usual_cause_of_absence(operation_.request().acting.purpose),
                         late.empty() ? -1 : late.front()));
  return false;
}

void Wait::look_at_machines(Time now) {
  if (now < look_) return;
  core_.roster().fabric().end_silent();
  look_ = now + LOOK;
}

// Works until there is no part to help with. Parts are posted with the lock held, so none is overlooked.
void Wait::help() {
  while (helper_->has_work()) {
    session_.lock().unlock();
    helper_->work();
    session_.lock().lock();
    session_.settle();
  }
}

Wait::Time Wait::until(Time now) const {
  Time next = std::min(clock_.next(), look_);
  if (!core_.calls().is_announced(operation_)) next = std::min(next, now + CallBook::SILENCE);
  if (!helper_) return next;
  const auto pause = std::clamp<std::chrono::nanoseconds>(clock_.waited(now) / 10, HELP, 10 * HELP);
  return std::min(next, now + pause);
}

void Wait::help_other_groups() {
  session_.lock().unlock();
  core_.roster().node()->local()->help();
  session_.lock().lock();
}

}  // namespace lockstep::messages

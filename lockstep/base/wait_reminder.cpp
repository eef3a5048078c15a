#include "lockstep/base/wait_reminder.h"

#include <utility>

#include "lockstep/base/log.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

constexpr int MOST_DOUBLINGS = 20;

thread_local Awaited* innermost = nullptr;

}  // namespace

Awaited::Awaited(std::function<std::string()> what)
    : what_(std::move(what)), outer_(std::exchange(innermost, this)) {}

Awaited::~Awaited() { innermost = outer_; }

WaitReminder::WaitReminder(std::chrono::nanoseconds after, std::string where, std::string how)
    : after_(after),
      where_(std::move(where)),
      how_(std::move(how)),
      outer_(std::exchange(during_naps, this)) {}

WaitReminder::~WaitReminder() { during_naps = outer_; }

void WaitReminder::look() {
  if (innermost == nullptr || innermost->said_ == MOST_DOUBLINGS) return;
  const std::chrono::nanoseconds waited = RunningClock::now() - innermost->begun_;
  if (waited / (std::int64_t{1} << innermost->said_) < after_) return;
  ++innermost->said_;
  const auto seconds = std::chrono::floor<std::chrono::seconds>(waited).count();
  log(LogLevel::WARNING,
      str(where_, ": waiting for ", seconds, " s for ", innermost->what_(), how_.empty() ? "" : "; ", how_));
}

}  // namespace lockstep

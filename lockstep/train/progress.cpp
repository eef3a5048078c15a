#include "lockstep/train/progress.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "lockstep/base/environment.h"

namespace lockstep {
namespace {

constexpr auto TERMINAL_INTERVAL = std::chrono::milliseconds(100);
constexpr const char* CLEAR_LINE = "\r\033[K";

}  // namespace

int terminal_columns_for_rank_0() {
  constexpr int MAX_COLUMNS = 10'000;
  return static_cast<int>(env_number("LOCKSTEP_TERMINAL", 0, MAX_COLUMNS).value_or(0));
}

std::string progress_text(std::int64_t step, std::int64_t total_steps, double loss, double per_second,
                          const std::string& unit, double seconds_left) {
  const auto left = static_cast<long long>(std::ceil(std::max(0.0, seconds_left)));
  std::array<char, 200> text = {};
  std::snprintf(text.data(), text.size(), "step %lld/%lld  loss %.4f  %.0f %s/s  %lld:%02lld left",
                static_cast<long long>(step), static_cast<long long>(total_steps), loss, per_second,
                unit.c_str(), left / 60, left % 60);
  return text.data();
}

Progress::Progress(std::FILE* out, const ProgressOptions& options)
    : out_(out), options_(options), steps_(options.first_step), started_(Clock::now()), shown_(started_) {}

void Progress::step(double loss, std::int64_t count) {
  if (out_ == nullptr) return;
  ++steps_;
  loss_ = loss;
  count_ += count;
  const auto now = Clock::now();
  const bool last = steps_ == options_.total_steps;
  const auto interval =
      options_.columns > 0 ? std::chrono::milliseconds(TERMINAL_INTERVAL) : options_.interval;
  if (now - shown_ >= interval || (last && options_.columns > 0)) show(now);
}

void Progress::show(Clock::time_point now) {
  const double since = std::chrono::duration<double>(now - shown_).count();
  const double total = std::chrono::duration<double>(now - started_).count();
  const double left = total / static_cast<double>(steps_ - options_.first_step) *
                      static_cast<double>(options_.total_steps - steps_);
  std::string text = progress_text(steps_, options_.total_steps, loss_, static_cast<double>(count_) / since,
                                   options_.unit, left);
  if (options_.columns > 0) {
    text.resize(std::min(text.size(), static_cast<std::size_t>(options_.columns - 1)));
    std::fprintf(out_, "%s%s", CLEAR_LINE, text.c_str());
  } else {
    std::fprintf(out_, "%s\n", text.c_str());
  }
  std::fflush(out_);
  count_ = 0;
  shown_ = now;
}

void Progress::say(const std::string& line) {
  if (out_ == nullptr) return;
  std::fprintf(out_, "%s%s\n", options_.columns > 0 ? CLEAR_LINE : "", line.c_str());
  std::fflush(out_);
}

}  // namespace lockstep

#include "lockstep/parallel/ddp/step_times.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "lockstep/base/str.h"

namespace lockstep {
namespace {

double seconds(StepClock::Time from, StepClock::Time to) {
  return std::chrono::duration<double>(to - from).count();
}

std::string milliseconds(double seconds) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f ms", seconds * 1e3);
  return text.data();
}

std::string column(const std::string& text, std::size_t width) {
  return std::string(width > text.size() ? width - text.size() : 0, ' ') + text;
}

struct Phase {
  const char* name;
  double StepTimes::*seconds;
};
constexpr std::array<Phase, 3> PHASES = {{{"time between steps", &StepTimes::between},
                                          {"forward", &StepTimes::forward},
                                          {"backward", &StepTimes::backward}}};

double mean_of_others(const RankTimes& times, std::size_t rank, double StepTimes::*part) {
  double sum = 0;
  for (std::size_t r = 0; r < times.ranks.size(); ++r) sum += r == rank ? 0 : times.ranks[r].*part;
  return sum / static_cast<double>(times.ranks.size() - 1);
}

std::string verdict(const RankTimes& times) {
  const std::size_t last = times.last_to_arrive();
  std::size_t first = last;
  for (std::size_t r = 0; r < times.ranks.size(); ++r) {
    if (times.lag(r) < times.lag(first)) first = r;
  }
  const auto excess = [&](const Phase& phase) {
    return times.ranks[last].*phase.seconds - mean_of_others(times, last, phase.seconds);
  };
  const auto longest = std::max_element(
      PHASES.begin(), PHASES.end(), [&](const Phase& a, const Phase& b) { return excess(a) < excess(b); });
  return str("rank ", last, " came last, ", milliseconds(times.lag(last)), " after rank ", first, "; its ",
             longest->name, " took ", milliseconds(times.ranks[last].*longest->seconds),
             ", that of the others ", milliseconds(mean_of_others(times, last, longest->seconds)), "\n");
}

}  // namespace

double StepClock::lap(Time now) {
  const double since = last_event_ ? seconds(*last_event_, now) : 0;
  last_event_ = now;
  return since;
}

void StepClock::forward_begins(Time now) {
  current_.between += lap(now);
  last_gradient_.reset();  // it may be of a pass that averaged nothing
}

void StepClock::forward_ended(Time now) { current_.forward += lap(now); }

void StepClock::backward_ended(Time now) {
  current_.backward += lap(now);
  last_gradient_ = now;
}

void StepClock::starting(Time from, Time to) {
  if (!first_start_) first_start_ = from;
  if (!last_gradient_) current_.exposed += seconds(from, to);
}

void StepClock::averaged(Time now) {
  current_.waited = lap(now);
  current_.exposed += current_.waited;
  const Time last_gradient = last_gradient_.value_or(now);
  current_.communication = seconds(std::min(first_start_.value_or(last_gradient), last_gradient), now);
  last_ = current_;
  current_ = {};
  first_start_.reset();
  last_gradient_.reset();
}

double RankTimes::lag(std::size_t rank) const {
  double longest = 0;
  for (const StepTimes& other : ranks) longest = std::max(longest, other.waited);
  return longest - ranks.at(rank).waited;
}

std::size_t RankTimes::last_to_arrive() const {
  const auto least = std::min_element(
      ranks.begin(), ranks.end(), [](const StepTimes& a, const StepTimes& b) { return a.waited < b.waited; });
  return static_cast<std::size_t>(least - ranks.begin());
}

std::string to_string(const RankTimes& times) {
  std::string text = "rank    between    forward   backward   communication (exposed)   arrived\n";
  for (std::size_t r = 0; r < times.ranks.size(); ++r) {
    const StepTimes& one = times.ranks[r];
    const double lag = times.lag(r);
    text += column(str(r), 4) + column(milliseconds(one.between), 11) +
            column(milliseconds(one.forward), 11) + column(milliseconds(one.backward), 11) +
            column(milliseconds(one.communication), 16) + " (" + column(milliseconds(one.exposed), 7) +
            ")   " + (lag > 0 ? milliseconds(lag) + " later" : "first") + "\n";
  }
  if (times.ranks.size() > 1) text += verdict(times);
  return text;
}

}  // namespace lockstep

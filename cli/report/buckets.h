// The part of a report about collectives: when each rank was in which one, and which rank came last. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/report/arrivals.h"

namespace lockstep::cli {

// The time window of one clock in a timeline.
struct TimelineWindow {
  Span time;
  std::string what;  // "step 3 of the profile"
};

// The window of the step of median length on the first rank that has steps, from the first start to the last
// end over all ranks. Without steps, that of the last calls, as in a flight recorder. Nothing if there is no
// call.
std::optional<TimelineWindow> window_of(const std::vector<RankProfile>& profiles, const ClockCalls& calls);

// The operations of `profiles` are drawn behind the calls; none for a flight recorder.
std::string timeline_html(const std::vector<RankProfile>& profiles, const ClockCalls& calls);
std::string arrivals_html(const ClockCalls& calls);

}  // namespace lockstep::cli

// The part of a report about collectives: when each rank was in which, and who came last. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/report/arrivals.h"

namespace lockstep::cli {

// What a timeline shows of one clock.
struct TimelineWindow {
  Span time;
  std::string what;  // "step 3 of the profile"
};

// The step of median length on the first rank that has steps, from the first start to the last end over all
// ranks; without steps the last calls, as of a flight recorder. Nothing where there is no call.
std::optional<TimelineWindow> window_of(const std::vector<RankProfile>& profiles, const ClockCalls& calls);

// `profiles`: whose operations are drawn behind the calls; none for a flight recorder.
std::string timeline_html(const std::vector<RankProfile>& profiles, const ClockCalls& calls);
std::string arrivals_html(const ClockCalls& calls);

}  // namespace lockstep::cli

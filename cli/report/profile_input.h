// One rank's profiler trace, as Profile::export_chrome_trace() writes it: its steps, and the parts of each.
// Pure.
//
//   const RankProfile profile = parse_profile(text, "trace_0.json");
//   const StepParts parts = parts_of(profile, profile.steps[3]);      // nanoseconds
//
// Steps       ranges of the program (record_function) with the name "step", or "ProfilerStep#..." as those of
//             Python's profiler.
// Backward    operations with a thread of the forward pass ("Fwd thread id").
// Memory      Of a large trace only the spans of time are kept; each event is dropped once it has been read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cli/report/spans.h"

namespace lockstep::cli {

// A collective, on one rank.
struct ReportCall {
  std::string verb;
  std::string group;
  int rank = 0;  // in the group
  std::uint64_t sequence = 0;
  std::uint64_t bytes = 0;
  bool is_bucket = false;  // of gradients
  Span time;
};

struct RankProfile {
  std::string path;
  int rank = 0;
  int world_size = 1;
  std::vector<Span> steps;  // by start
  Spans backward;           // merged
  Spans operations;         // merged; with backward's
  Spans in_flight;          // merged; calls of any kind
  std::vector<ReportCall> calls;
};

// The parts add up to the step.
struct StepParts {
  std::int64_t backward = 0;
  std::int64_t operations = 0;     // without those of backward
  std::int64_t communication = 0;  // exposed: calls in flight while no operation runs
  std::int64_t rest = 0;
};

StepParts parts_of(const RankProfile& profile, const Span& step);
// The mean over all but the first step; over all if there are fewer than three.
StepParts mean_parts(const RankProfile& profile);

// Throws FormatError that names the file.
RankProfile parse_profile(std::string_view text, const std::string& path);

}  // namespace lockstep::cli

// The inputs of a report: the files in folders, each recognised and read.
//
//   const ReportInputs inputs = read_inputs({"runs/7"});
//
// Folder      its files and those of its folders. A file is recognised by its beginning (a trace of the
//             profiler, of a flight recorder) or its name (.jsonl, .csv); others are left out.
// File        A single file is read as its kind. If it is not a trace, it is JSON lines, or CSV if its name
//             ends in .csv.
// Fails       SystemError, FormatError that name the file; InvalidArgument: two profiler traces of one rank.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "cli/report/metrics_input.h"
#include "cli/report/profile_input.h"
#include "lockstep/comm/trace/rank_trace.h"

namespace lockstep::cli {

struct ReportInputs {
  std::string title;  // of the page: the first path
  std::vector<MetricsTable> metrics;
  std::vector<RankProfile> profiles;  // by rank
  std::vector<RankTrace> recorders;
  std::vector<std::pair<std::string, std::size_t>> recorder_files;  // path and number of ranks
};

ReportInputs read_inputs(const std::vector<std::string>& paths);

}  // namespace lockstep::cli

// Trace files: the last calls of the ranks of a job, as JSON.
//
//   {"lockstep_trace": 1, "ranks": [{"rank": 0, "size": 2, "pid": 4121, "program": "train",
//     "host": "a", "job": "1f…", "world": 1,
//     "process": "S", "read_at": "2026-11-21 16:02:26 UTC", "read_ns": 91…, "joining_ns": 0,
//     "groups": [{"name": "world", "backend": "shm", "rank": 0,
//       "members": [0, 1], "closed": false, "failure": "", "calls": 118,
//       "records": [{"number": 118, "sequence": 118,
//         "verb": "all_reduce", "dtype": "float32", "op": "sum", "root": 0, "tag": 0,
//         "count": 1000000, "bytes": 4000000,
//         "state": "posted", "start_ns": 87…, "end_ns": 0}]}]}]}
//
// Each record is one line. "root" is the root or the peer (-1: any). "state" is posted, done or failed. Times
// are of steady_clock on the rank's machine.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/comm/trace/rank_trace.h"

namespace lockstep {

class TraceMemory;

std::string trace_text(const std::vector<RankTrace>& traces);
// Throws FormatError that names `path` and the fault.
std::vector<RankTrace> parse_trace(std::string_view text, const std::string& path);

// Writes the whole file or nothing, readable by this user alone (0600). Throws SystemError.
void write_trace(const std::string& path, const std::vector<RankTrace>& traces);
// Throws SystemError if the file is missing, a pipe or a folder. Throws FormatError for any other fault, and
// for an empty file.
std::vector<RankTrace> read_trace_file(const std::string& path);

// Writes one file into $LOCKSTEP_TRACE_DIR, "rank2-pid4121.json". It has the records of this rank and of all
// ranks whose memory can be read here. Makes the folder if it is missing (0700). Returns the end of the
// error's message; empty if the variable is not set.
std::string write_failure_trace(const TraceMemory& memory);

}  // namespace lockstep

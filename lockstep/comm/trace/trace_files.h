// Trace files: what the ranks of a job did last, as JSON.
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
// A record is a line. "root" is the root or the peer (-1: any); "state" posted, done or failed; times are of
// steady_clock on the rank's machine.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/comm/trace/rank_trace.h"

namespace lockstep {

class TraceMemory;

std::string trace_text(const std::vector<RankTrace>& traces);
// Throws FormatError, naming `path` and what is wrong.
std::vector<RankTrace> parse_trace(std::string_view text, const std::string& path);

// Whole or not at all, and for this user alone (0600). Throws SystemError.
void write_trace(const std::string& path, const std::vector<RankTrace>& traces);
// Throws SystemError (missing, a pipe, a folder), FormatError (anything else, an empty file, too).
std::vector<RankTrace> read_trace_file(const std::string& path);

// One file in $LOCKSTEP_TRACE_DIR, "rank2-pid4121.json", with the records of this rank and of all others that
// can be read here; the folder is made (0700). Returns what to add to the error that this belongs to; empty
// if the variable is not set.
std::string write_failure_trace(const TraceMemory& memory);

}  // namespace lockstep

// A profile as Chrome trace events, which ui.perfetto.dev, chrome://tracing and TensorBoard show.
//
//   {"schemaVersion": 1, "distributedInfo": {"backend": "shm", "rank": 2, "world_size": 4},
//    "displayTimeUnit": "ms",
//    "baseTimeNanoseconds": 1792…, "traceEvents": [
//   {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 4121, "tid": 4121, "ts": 81.5, "dur": 12.25,
//    "args": {…}},
//   {"ph": "X", "cat": "lockstep", "name": "lockstep:all_reduce", …, "args": {"group": "world",
//    "backend": "shm", "sequence": 118,
//      "bytes": 4000000, "call": "all_reduce(float32[1000000], sum)", "state": "done", "rank": 2}}, …]}
//
// Times are microseconds since baseTimeNanoseconds, which is the same for all ranks within 52 days. So traces
// of several ranks can be compared as well as their machines' clocks agree. Calls on a group are on a track
// "lockstep GROUP (BACKEND)", or on several if they overlap. Each call appears once, even if it was waited
// for later. A call that had not ended has "state": "posted" and the profile's end. A message has "peer" and
// "tag" in place of "sequence".
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "lockstep/train/profiler_events.h"

namespace lockstep {

// Writes it in pieces, in order.
void write_chrome_trace(const ProfilerTrace& trace, const std::function<void(std::string_view)>& write);

// Replaces "{rank}" in `path`. Without it, ranks of a world of several write "trace_rank_2.json" in place of
// "trace.json".
std::string path_of_rank(const std::string& path, int rank, int world_size);

}  // namespace lockstep

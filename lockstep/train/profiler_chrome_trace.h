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
// Times are microseconds since baseTimeNanoseconds, which is the same for all ranks (of 52 days), so that
// traces of several ranks can be laid side by side as well as their machines' clocks agree. Calls on a group
// are a track "lockstep GROUP (BACKEND)", and more than one where they overlap; each appears once, also if it
// was waited for later. One that had not ended has "state": "posted" and the profile's end. Of messages
// "peer" and "tag" take the place of "sequence".
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "lockstep/train/profiler_events.h"

namespace lockstep {

// In pieces, in order.
void write_chrome_trace(const ProfilerTrace& trace, const std::function<void(std::string_view)>& write);

// "{rank}" in `path` is replaced; without it, ranks of a world of several write "trace_rank_2.json" in place
// of "trace.json".
std::string path_of_rank(const std::string& path, int rank, int world_size);

}  // namespace lockstep

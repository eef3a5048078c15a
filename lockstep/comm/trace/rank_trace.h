// What a rank's flight recorder says, as plain data: read from its memory (also of a dead or stopped
// process), written to and read from trace files (trace_files.h), explained by trace_analysis.h.
//
//   const std::vector<RankTrace> job = live_traces(4121);             // of the job that process 4121 starts
//                                                                     // or belongs to
//   std::puts(analyze(job).c_str());
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/visibility.h"
#include "lockstep/comm/call.h"
#include "lockstep/comm/trace/trace_layout.h"
#include "lockstep/os/cycle_clock.h"

namespace LOCKSTEP_PUBLIC lockstep {

enum class CallState : std::uint8_t { POSTED, DONE, FAILED };
std::string_view name_of(CallState state);

struct TraceRecord {
  std::uint64_t number = 0;    // of the calls on this group, from 1
  std::uint64_t sequence = 0;  // of a collective; 0: a message
  Call call;
  int tag = 0;
  std::int64_t start_ns = 0;  // by steady_clock of the rank's machine
  std::int64_t end_ns = 0;    // 0 while posted
  CallState state = CallState::POSTED;
};

struct GroupTrace {
  std::string name;
  std::string backend;
  int rank = 0;
  std::vector<int> members;          // ranks of the world, in the group's order
  bool is_closed = false;            // the rank has left it
  std::string failure;               // the first, as this rank was told it; empty: none
  std::uint64_t calls = 0;           // made so far
  std::vector<TraceRecord> records;  // of the last calls, oldest first
};

struct RankTrace {
  int rank = 0;  // in the world
  int size = 1;
  long pid = 0;
  std::string program;  // its name; empty: not known
  std::string host;
  std::string job;
  std::uint32_t world = 1;      // which of the process: it may leave and join again
  char process = '?';           // letter of /proc/PID/stat; T: stopped, X: it has ended
  std::int64_t read_ns = 0;     // when, by steady_clock of that machine
  std::string read_at;          // when, for people: "2026-11-21 16:02:26 UTC"
  std::int64_t joining_ns = 0;  // since when it waits in init_process_group, by that clock; 0: it does not
  std::vector<GroupTrace> groups;
};

// `bytes` of a trace memory; nullopt if they are not one. Records that are being written at the moment are
// left out. Bytes may change meanwhile and are not trusted.
std::optional<RankTrace> read_trace(std::span<const std::byte> bytes);

// One group's ring of it, and one record. `times`: two moments by both clocks. Nothing if the ring was never
// used or is given to another group meanwhile, if the record is being written.
struct TraceTimes {
  CycleClock::Pair first, now;
};
std::optional<GroupTrace> read_ring(const std::byte* ring, int world_size, const TraceTimes& times);
std::optional<TraceRecord> read_record(const trace::Record& record, const TraceTimes& times);

// The traces of the job that `pid` (its launcher, or one of its ranks) belongs to; without it of every job
// that this user may look at here. By rank; of a process that joined again, the last world.
std::vector<RankTrace> live_traces(std::optional<long> pid = std::nullopt);

}  // namespace lockstep

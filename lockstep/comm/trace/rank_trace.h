// The contents of a rank's flight recorder as plain data. They are read from its memory (also of a dead or
// stopped process), written to and read from trace files (trace_files.h), and explained by trace_analysis.h.
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
  std::uint64_t number = 0;    // counts the calls on this group, from 1
  std::uint64_t sequence = 0;  // number of the collective; 0 for a message
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
  bool is_closed = false;            // the rank has left the group
  std::string failure;               // the first failure, as this rank heard it; empty if there is none
  std::uint64_t calls = 0;           // number of calls so far
  std::vector<TraceRecord> records;  // of the last calls, oldest first
};

struct RankTrace {
  int rank = 0;  // in the world
  int size = 1;
  long pid = 0;
  std::string program;  // its name; empty if it is not known
  std::string host;
  std::string job;
  std::uint32_t world = 1;  // counts the worlds of the process, which may leave and join again
  // state letter of /proc/PID/stat: T is stopped; X means that the process has ended
  char process = '?';
  std::int64_t read_ns = 0;  // when the trace was read, by steady_clock of that machine
  std::string read_at;       // the same for people: "2026-11-21 16:02:26 UTC"
  // since when it has waited in init_process_group, by that clock; 0 if it does not wait
  std::int64_t joining_ns = 0;
  std::vector<GroupTrace> groups;
};

// Reads the `bytes` of a trace memory; nullopt if they are not one. Leaves out records that are being written
// at the moment. The bytes may change meanwhile and are not trusted.
std::optional<RankTrace> read_trace(std::span<const std::byte> bytes);

// Reads one group's ring, or one record. `times` holds two moments by both clocks. Returns nothing if the
// ring was never used or is being given to another group, or if the record is being written.
struct TraceTimes {
  CycleClock::Pair first, now;
};
std::optional<GroupTrace> read_ring(const std::byte* ring, int world_size, const TraceTimes& times);
std::optional<TraceRecord> read_record(const trace::Record& record, const TraceTimes& times);

// Returns the traces of the job that `pid` (its launcher, or one of its ranks) belongs to. Without `pid`, the
// traces of every job here that this user may read. In order of ranks; for a process that has joined again,
// the last world.
std::vector<RankTrace> live_traces(std::optional<long> pid = std::nullopt);

}  // namespace lockstep

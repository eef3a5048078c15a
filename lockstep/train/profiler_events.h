// What a profiler has seen, as plain data. profiler.h makes it of libtorch's events and our flight recorder;
// profiler_averages.h and profiler_chrome_trace.h are functions of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/comm/trace/rank_trace.h"

namespace lockstep {

struct ProfilerEvent {
  enum class Kind : std::uint8_t {
    OPERATION,        // of libtorch, or anything else that has a RecordFunction
    USER_ANNOTATION,  // record_function
    MEMORY,           // taken or given back (`bytes` below 0) at start_ns
    DEVICE,           // ran on a GPU
  };

  std::string name;
  Kind kind = Kind::OPERATION;
  std::int64_t start_ns = 0;  // since 1970
  std::int64_t end_ns = 0;
  std::uint64_t thread = 0;      // libtorch's number of it
  std::int64_t resource = 0;     // the kernel's number of the thread; of DEVICE the stream
  std::uint64_t fwd_thread = 0;  // of a backward function: where forward ran; else 0
  std::int64_t sequence_nr = -1;
  bool is_async = false;  // ended on another thread than it began on
  std::vector<std::vector<std::int64_t>> input_shapes = {};
  std::int64_t bytes = 0;
  int device_index = 0;
};

struct ProfilerTrace {
  std::vector<ProfilerEvent> events;
  std::vector<GroupTrace> groups;   // our collectives and messages, by steady_clock ...
  std::int64_t steady_to_unix = 0;  // ... and what to add to make it nanoseconds since 1970
  std::int64_t start_ns = 0;        // since 1970
  std::int64_t end_ns = 0;
  int rank = 0;
  int world_size = 1;
  long pid = 0;
  std::string backend;  // of the world; empty: none
  bool profile_memory = false;
};

}  // namespace lockstep

// The events of a profile as plain data. profiler.h makes them from libtorch's events and our flight
// recorder. profiler_averages.h and profiler_chrome_trace.h are functions of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/comm/trace/rank_trace.h"

namespace lockstep {

struct ProfilerEvent {
  enum class Kind : std::uint8_t {
    OPERATION,        // of libtorch, or any other code with a RecordFunction
    USER_ANNOTATION,  // record_function
    MEMORY,           // allocated or freed (`bytes` below 0) at start_ns
    DEVICE,           // ran on a GPU
  };

  std::string name;
  Kind kind = Kind::OPERATION;
  std::int64_t start_ns = 0;  // since 1970
  std::int64_t end_ns = 0;
  std::uint64_t thread = 0;      // libtorch's number of the thread
  std::int64_t resource = 0;     // the kernel's number of the thread; for DEVICE the stream
  std::uint64_t fwd_thread = 0;  // for a backward function: the thread of its forward; else 0
  std::int64_t sequence_nr = -1;
  bool is_async = false;  // ended on another thread than it began on
  std::vector<std::vector<std::int64_t>> input_shapes = {};
  std::int64_t bytes = 0;
  int device_index = 0;
};

struct ProfilerTrace {
  std::vector<ProfilerEvent> events;
  std::vector<GroupTrace> groups;   // our collectives and messages, by steady_clock
  std::int64_t steady_to_unix = 0;  // added to their times gives nanoseconds since 1970
  std::int64_t start_ns = 0;        // since 1970
  std::int64_t end_ns = 0;
  int rank = 0;
  int world_size = 1;
  long pid = 0;
  std::string backend;  // of the world; empty if there is none
  bool profile_memory = false;
};

}  // namespace lockstep

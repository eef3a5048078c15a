// KeyAverages: the events of a profile added up by name, and as a table. Rules and words are those of
// Python's key_averages().
//
//   std::cout << profile.key_averages().table("self_cpu_time_total", 10);
//
// Self        time is the time of an operation without that of the operations it called on the same thread.
//             All self times together are the time spent in operations. An operation that called only itself
//             counts once.
// Ours        A collective is a row "lockstep:all_reduce", from its call to its end. That is waiting, not
//             computing, so its self time is 0 (as for Python's asynchronous events).
// Memory      counts for the thread that allocated or freed it, by operation. "[memory]" is memory outside of
//             any operation.
// Devices     The table is about the CPU. GPU events are in the Chrome trace.
// Source      torch/autograd/profiler_util.py of PyTorch 2.13.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/train/profiler_events.h"

namespace lockstep {

// Times in microseconds.
struct FunctionEventAvg {
  std::string key;
  std::int64_t count = 0;
  double cpu_time_total = 0;
  double self_cpu_time_total = 0;
  std::int64_t cpu_memory_usage = 0;
  std::int64_t self_cpu_memory_usage = 0;
  std::string input_shapes = {};  // "[[3, 16], []]"; empty unless grouped by shapes
  bool is_async = false;
  bool is_user_annotation = false;
  double cpu_time() const { return count == 0 ? 0 : cpu_time_total / static_cast<double>(count); }
};

class KeyAverages : public std::vector<FunctionEventAvg> {
 public:
  explicit KeyAverages(bool with_memory) : with_memory_(with_memory) {}

  // `sort_by` is one of self_cpu_time_total, cpu_time_total, cpu_time, count, cpu_memory_usage and
  // self_cpu_memory_usage, largest first. Without it rows are in the order of the first calls. `row_limit`
  // below 0 means all rows. Throws InvalidArgument for another word.
  std::string table(std::string_view sort_by = {}, int row_limit = 100) const;

 private:
  bool with_memory_;
};

KeyAverages key_averages(const ProfilerTrace& trace, bool group_by_input_shape);

}  // namespace lockstep

// KeyAverages: the events of a profile added up by name, and as a table, by the rules and in the words of
// Python's key_averages().
//
//   std::cout << profile.key_averages().table("self_cpu_time_total", 10);
//
// Self        a time without that of the operations it called on the same thread; all of them together are
//             the time that was spent in operations. An operation that called itself alone counts once.
// Ours        a collective is a row "lockstep:all_reduce": from its call to its end, which is waiting, not
//             computing, so its self time is 0 (as Python has asynchronous events).
// Memory      of the thread that it was taken and given back on, by operation; "[memory]" is what lay in
//             none.
// Devices     the table is about the CPU. What ran on a GPU is in the Chrome trace.
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
  std::string input_shapes = {};  // "[[3, 16], []]"; empty unless grouped by it
  bool is_async = false;
  bool is_user_annotation = false;
  double cpu_time() const { return count == 0 ? 0 : cpu_time_total / static_cast<double>(count); }
};

class KeyAverages : public std::vector<FunctionEventAvg> {
 public:
  explicit KeyAverages(bool with_memory) : with_memory_(with_memory) {}

  // `sort_by`: self_cpu_time_total, cpu_time_total, cpu_time, count, cpu_memory_usage or
  // self_cpu_memory_usage, largest first; without it in the order of the first calls. `row_limit` below 0:
  // all rows. Throws InvalidArgument for another word.
  std::string table(std::string_view sort_by = {}, int row_limit = 100) const;

 private:
  bool with_memory_;
};

KeyAverages key_averages(const ProfilerTrace& trace, bool group_by_input_shape);

}  // namespace lockstep

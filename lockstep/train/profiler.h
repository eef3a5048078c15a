// profile: measures the time of a part of the program, by operation, including the collectives of Lockstep.
// The counterpart of torch.profiler.profile.
//
//   auto prof = dist::profile({.record_shapes = true});             // from here ...
//   for (int step = 0; step < 10; ++step) {
//     const auto range = dist::record_function("step");  // a named range, until the end of the scope
//     train(step);
//   }
//   prof.stop();                                                    // ... to here
//   if (dist::get_rank() == 0) std::cout << prof.key_averages().table("self_cpu_time_total", 10);
//   prof.export_chrome_trace("trace_{rank}.json");                  // of every rank; for ui.perfetto.dev
//
// Sees        operations of libtorch and record_function ranges on the thread that began the profile, and on
//             threads that libtorch's autograd starts for it. With profile_all_threads, on all threads. It
//             also sees every collective and message of this process on any group and thread. The trace has
//             their group, sequence number, bytes and state. The table has rows such as
//             "lockstep:all_reduce".
// Cost        about a microsecond per operation, more with record_shapes and profile_memory, and some hundred
//             bytes of memory each until the profile is destroyed. None if there is no profile.
// Threads     Call stop() and destroy the object on the thread that began it. stop() throws InvalidArgument
//             on another. If it is destroyed on another thread, libtorch's profiler stays running. The other
//             functions may be called from any thread after stop().
// One         at a time in a process, as with libtorch's profiler. Another one, nested or on another thread,
//             throws InvalidArgument, and the first goes on. So does one that the program began through
//             libtorch itself.
// Exceptions  that leave the profiled part end the profile with its object. If it is declared outside of the
//             try block, it can be stopped and read afterwards, and has everything up to the exception.
// Ranks       Nothing is communicated. Each rank has its own profile and file, and may have none.
// Stacks      with_stack is refused (InvalidArgument). libtorch has no C++ frames, only those of Python and
//             TorchScript. It assigns TorchScript's to the wrong operations once a backward function has run.
//             Name ranges with record_function instead.
// GPUs        ProfilerActivity::CUDA needs a libtorch and a machine with CUDA, else InvalidArgument. The
//             trace has the kernels; the table is about the CPU.
// Prints      libtorch's Kineto writes two lines "USDT: ... profiler_start" and "profiler_stop" to stderr, as
//             under Python. It exports no function to change that. KINETO_LOG_LEVEL=6 in the environment of
//             the process suppresses them.
#pragma once

#include <ATen/record_function.h>

#include <memory>
#include <string>
#include <vector>

#include "lockstep/train/profiler_averages.h"

namespace lockstep {

enum class ProfilerActivity { CPU, CUDA };

struct ProfileOptions {
  std::vector<ProfilerActivity> activities = {};  // empty: all that this machine supports
  // records shapes of inputs, for key_averages(true) and the trace
  bool record_shapes = false;
  bool profile_memory = false;  // adds the columns "CPU Mem", and events in the trace
  bool with_stack = false;      // refused, see above
  bool profile_all_threads = false;
};

class Profile {
 public:
  explicit Profile(const ProfileOptions& options);
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  // Ends the profile. Does nothing if it has ended.
  void stop();

  // Throws InvalidArgument before stop().
  const ProfilerTrace& trace() const;
  KeyAverages key_averages(bool group_by_input_shape = false) const;

  // Writes this rank's trace, whole or not at all, and returns its path. "{rank}" in `path` becomes the rank.
  // Without it, if the world has several ranks, "trace.json" becomes "trace_rank_2.json". The file is
  // readable by this user alone (0600). Throws SystemError that names it.
  std::string export_chrome_trace(const std::string& path) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

[[nodiscard]] inline Profile profile(const ProfileOptions& options = {}) { return Profile(options); }

// A named range, for this and any other profiler of libtorch. Ranges nest.
class RecordFunctionRange {
 public:
  explicit RecordFunctionRange(std::string name);
  RecordFunctionRange(const RecordFunctionRange&) = delete;
  RecordFunctionRange& operator=(const RecordFunctionRange&) = delete;

 private:
  at::RecordFunction range_;
};

[[nodiscard]] inline RecordFunctionRange record_function(std::string name) {
  return RecordFunctionRange(std::move(name));
}

}  // namespace lockstep

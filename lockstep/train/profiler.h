// profile: what a part of the program spends its time on, by operation, with our collectives. The counterpart
// of torch.profiler.profile.
//
//   auto prof = dist::profile({.record_shapes = true});             // from here ...
//   for (int step = 0; step < 10; ++step) {
//     const auto range = dist::record_function("step");  // a range of one's own, until the end of the scope
//     train(step);
//   }
//   prof.stop();                                                    // ... to here
//   if (dist::get_rank() == 0) std::cout << prof.key_averages().table("self_cpu_time_total", 10);
//   prof.export_chrome_trace("trace_{rank}.json");                  // of every rank; for ui.perfetto.dev
//
// Sees        operations of libtorch and record_function ranges on the thread that began the profile and on
//             those that libtorch's autograd starts for it; with profile_all_threads on all threads. Every
//             collective and message of this process on any group, from whatever thread: in the trace with
//             group, sequence number, bytes and state, in the table as "lockstep:all_reduce" and so on.
// Cost        about a microsecond per operation, more with record_shapes and profile_memory, and some hundred
//             bytes of memory each until the profile is destroyed. None when there is no profile.
// Threads     stop() and the end of the object belong on the thread that began it; stop() throws
//             InvalidArgument on another, and destroyed on another it leaves libtorch's profiler running. The
//             rest may be called from any thread after stop().
// One         at a time in a process, as libtorch's profiler: another one, nested or on another thread,
//             throws InvalidArgument, and the first goes on. So does one that the program began through
//             libtorch itself.
// Exceptions  that leave the profiled part end the profile with its object; declared outside of the try block
//             it can be stopped and looked at afterwards, and has everything up to there.
// Ranks       nothing is communicated: each rank has its own profile and file, and may have none.
// Stacks      with_stack is refused (InvalidArgument): libtorch has no C++ frames, only those of Python and
//             TorchScript, and gives TorchScript's to the wrong operations once a backward function has run.
//             Name ranges with record_function.
// GPUs        ProfilerActivity::CUDA needs a libtorch and a machine that have CUDA, else InvalidArgument.
//             Kernels are in the trace, the table is of the CPU.
// Prints      libtorch's Kineto writes two lines "USDT: ... profiler_start" and "profiler_stop" to stderr, as
//             it does under Python; it exports no function to change that. KINETO_LOG_LEVEL=6 in the
//             environment of the process does.
#pragma once

#include <ATen/record_function.h>

#include <memory>
#include <string>
#include <vector>

#include "lockstep/train/profiler_averages.h"

namespace lockstep {

enum class ProfilerActivity { CPU, CUDA };

struct ProfileOptions {
  std::vector<ProfilerActivity> activities = {};  // empty: all that this machine has
  bool record_shapes = false;                     // of inputs: for key_averages(true) and the trace
  bool profile_memory = false;                    // columns "CPU Mem", and events in the trace
  bool with_stack = false;                        // refused, see above
  bool profile_all_threads = false;
};

class Profile {
 public:
  explicit Profile(const ProfileOptions& options);
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  // The end of the profile. Does nothing when it has ended.
  void stop();

  // After stop(), else InvalidArgument.
  const ProfilerTrace& trace() const;
  KeyAverages key_averages(bool group_by_input_shape = false) const;

  // Writes this rank's trace, whole or not at all, and returns where: "{rank}" in `path` becomes the rank; if
  // it is not there and the world has several ranks, "trace.json" becomes "trace_rank_2.json". The file is
  // for this user alone (0600). Throws SystemError naming it.
  std::string export_chrome_trace(const std::string& path) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

[[nodiscard]] inline Profile profile(const ProfileOptions& options = {}) { return Profile(options); }

// A range with a name, for this and any other profiler of libtorch's. Ranges nest.
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

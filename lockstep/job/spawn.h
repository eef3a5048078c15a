// spawn: starts the ranks of a job from inside the program, like torch.multiprocessing.spawn.
//
//   int main() {
//     dist::spawn(4, [](int rank) {
//       dist::init_process_group();                       // rank `rank` of 4
//       train();
//     });                                                 // returns when all four have ended
//   }
//
// *main is replayed.* Every rank is a new process of the same program with the same arguments, environment
// and current folder. It runs main again from its start to the same call of spawn(). There it runs fn(rank)
// and ends: with exit code 0, or with 1 after an exception. So every rank also runs the code before the call,
// which should only parse arguments and the like, and never the code after it. The variables that fn captures
// have the values that main gives them in that process. In a replay, earlier calls of spawn() return at once
// without effect. It is an error if a rank's main takes another path: if it ends before the call, or reaches
// another call of spawn().
//
// Who         a process that has not joined a job itself: call it before init_process_group(). Calls are
//             counted, so make them in one thread. Not from fn: a spawned rank cannot spawn
//             (InvalidArgument).
// Environment as set by `lockstep run -n ranks`, so init_process_group() in fn needs no arguments; cores too.
//             Output goes straight to this process's standard output and error. Standard input is empty.
// Blocks      until all ranks have ended, unless {.join = false}.
// Fails       SpawnError for the first rank that failed: the text of its exception, or "rank 2 of 4 (pid 71)
//             was killed by SIGKILL", or its exit code. If the failure of a peer is known, a rank that only
//             lost this peer (PeerLost) does not count as the first. The other ranks have 300 ms to notice by
//             themselves, then they get SIGTERM, and 500 ms later SIGKILL. SystemError if a process cannot be
//             started.
// Leftovers   none: a rank's process group is killed when the rank has ended, and the kernel kills the ranks
//             when the thread that called spawn() ends in any way. Limit: if this process is killed,
//             processes that a *rank* started live on; under `lockstep run` these end too.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "lockstep/base/visibility.h"
#include "lockstep/os/process.h"

namespace LOCKSTEP_PUBLIC lockstep {

struct SpawnOptions {
  bool join = true;  // false: spawn() returns at once (see SpawnContext)
};

// The ranks of one call. The destructor ends those that still run (SIGTERM, 500 ms later SIGKILL).
//
//   dist::SpawnContext context = dist::spawn(2, fn, {.join = false});
//   while (!context.join(1s)) std::puts("still training");
class SpawnContext {
 public:
  class Children;

  explicit SpawnContext(std::unique_ptr<Children> children);
  SpawnContext(SpawnContext&&) noexcept;
  SpawnContext& operator=(SpawnContext&&) noexcept;
  ~SpawnContext();

  // Blocks until all ranks have ended. Throws like spawn(), at every call.
  void join();
  // The same for at most `timeout`. Returns false if some ranks still run.
  bool join(std::chrono::nanoseconds timeout);

  // By rank. Empty in a rank that replays main towards a later spawn().
  std::vector<pid_t> pids() const;

 private:
  std::unique_ptr<Children> children_;
};

// The position of the call in the program. Stands in for std::source_location, which clang 14 does not have.
struct CallPlace {
  const char* file;
  unsigned line;

  static CallPlace current(const char* file = __builtin_FILE(), unsigned line = __builtin_LINE()) {
    return {file, line};
  }
};

SpawnContext spawn(int ranks, const std::function<void(int rank)>& fn, const SpawnOptions& options = {},
                   CallPlace here = CallPlace::current());

}  // namespace lockstep

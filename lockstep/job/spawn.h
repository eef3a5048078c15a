// spawn: starts the ranks of a job from inside the program, as torch.multiprocessing.spawn does.
//
//   int main() {
//     dist::spawn(4, [](int rank) {
//       dist::init_process_group();                       // rank `rank` of 4
//       train();
//     });                                                 // returns when all four have ended
//   }
//
// *main is replayed.* Every rank is a new process of the same program with the same arguments, environment
// and current folder. It runs main again from its start, up to the same call of spawn(); there it runs
// fn(rank) and ends: with exit code 0, or with 1 after an exception. So everything before the call happens
// once more in every rank (it should only parse arguments and the like), nothing after it does, and what fn
// captures is what main makes of it in that process. Earlier calls of spawn() return at once in a replay,
// without doing anything. A rank whose main takes another path, and so ends without coming to the call or
// comes to another one, is an error that says so.
//
// Who         a process that has not joined a job itself (call it before init_process_group()); calls are
//             counted, so make them in one thread. Not from fn: a spawned rank cannot spawn
//             (InvalidArgument).
// Environment what `lockstep run -n ranks` sets, so that init_process_group() in fn needs no arguments; cores
//             as there. Output goes straight to this process's standard output and error; standard input is
//             empty.
// Blocks      until all ranks have ended, unless {.join = false}.
// Fails       SpawnError for the first rank that failed: what its exception said, or "rank 2 of 4 (pid 71)
//             was killed by SIGKILL", or its exit code. A rank that only lost a peer (PeerLost) is not the
//             first where the peer's own failure is known. The others have 300 ms to notice by themselves,
//             then SIGTERM, 500 ms later SIGKILL. SystemError when no process can be started.
// Left behind nothing: a rank's process group is killed when the rank has ended, and the kernel kills the
//             ranks when the thread that called spawn() ends, however it does. Limit: when this process is
//             killed, what a *rank* has started lives on; under `lockstep run` that ends too.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "lockstep/base/visibility.h"
#include "lockstep/os/process.h"

namespace LOCKSTEP_PUBLIC lockstep {

struct SpawnOptions {
  bool join = true;  // false: spawn() returns at once; see SpawnContext
};

// The ranks of one call. Destroying it ends those that still run (SIGTERM, 500 ms later SIGKILL).
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

  // Blocks until all ranks have ended. Throws as spawn() does; again, if called again.
  void join();
  // The same for at most `timeout`; false: some still run.
  bool join(std::chrono::nanoseconds timeout);

  // By rank. Empty in a rank of a later spawn(), which replays main.
  std::vector<pid_t> pids() const;

 private:
  std::unique_ptr<Children> children_;
};

// Where the call stands in the program. std::source_location, which clang 14 does not have.
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

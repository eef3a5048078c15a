// StopSignals: a request to stop, which all ranks see at the same step. A scheduler that wants the machine
// back signals the processes one by one, in the middle of a step. This class turns that into one answer at a
// step boundary.
//
//   int main() {
//     dist::StopSignals stop({SIGTERM, SIGUSR1});     // from here on these signals only set a flag
//     dist::init_process_group();
//     for (int step = 0; step < 1000; ++step) {
//       train_step();
//       if (stop.requested_on_any_rank()) {           // all ranks get the same answer
//         save();
//         return dist::EXIT_REQUEUE;                  // asks the scheduler to start the job again
//       }
//     }
//   }
//
//   if (const auto request = stop.requested_on_any_rank()) {          // SIGUSR1 means: save and continue
//     save();
//     if (request->signal == SIGUSR1) stop.clear();
//   }
//
// Collective  requested_on_any_rank(): every rank of the group, at the same steps of their loops.
// Cost        an all_reduce of 8 bytes. It waits for the slowest rank, as the next step's gradients would.
//             With `every` = K only each K-th call makes one, and the other calls return nothing at once. Use
//             that if steps are short and ranks talk over a network.
// Answer      if ranks got several signals, the one that is first in the list, and the lowest rank that got
//             it. All later calls return the same answer, without an all_reduce, until clear().
// Alone       before init_process_group(), and with one rank, the flag of this process is the answer.
// Handlers    the constructor installs them and the destructor removes them (os/signal_flags.h); the library
//             installs no others. A rank without this object ends at its first signal, as usual. If a request
//             was not cleared, the destructor leaves the handlers. A scheduler signals the ranks one by one,
//             so a rank that learned of the request from another rank may get its own signal while it ends.
//             That signal must not change the rank's exit code.
// Threads     the calling thread must be allowed to make collectives of the group at that point.
// Throws      InvalidArgument: no signals, a signal that cannot be caught, `every` below 1, a second
//             StopSignals while the first lives, requested_on_any_rank() on a process outside of the group.
//             Also the exceptions of an all_reduce.
#pragma once

#include <csignal>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/base/exit_code.h"
#include "lockstep/base/visibility.h"
#include "lockstep/comm/process_group.h"

namespace LOCKSTEP_PUBLIC lockstep {

class SignalFlags;

struct StopRequest {
  int signal = 0;
  int rank = 0;  // the lowest rank of the group that got it
};

struct StopSignalsOptions {
  int every = 1;                           // calls per all_reduce, the same on all ranks
  std::optional<ProcessGroup> group = {};  // default: the world, once it exists
};

class StopSignals {
 public:
  explicit StopSignals(std::vector<int> signals, StopSignalsOptions options = {});
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();

  std::optional<StopRequest> requested_on_any_rank();

  // The signal that this rank got, regardless of the other ranks. Does not communicate. For code that ranks
  // need not agree on, such as a progress line.
  std::optional<int> requested_here() const;

  // Forgets the answer and, on this rank, its signal. All ranks call it after the same answer. A signal that
  // reaches another rank later is a new request.
  void clear();

 private:
  std::vector<int> signals_;
  StopSignalsOptions options_;
  std::unique_ptr<SignalFlags> flags_;
  std::int64_t calls_ = 0;
  std::optional<StopRequest> agreed_;
};

}  // namespace lockstep

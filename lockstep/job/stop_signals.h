// StopSignals: being asked to stop, agreed by all ranks at the same step. A scheduler that wants the machine
// back signals the processes one by one and in the middle of a step; this makes of it one answer at a step
// boundary.
//
//   int main() {
//     dist::StopSignals stop({SIGTERM, SIGUSR1});     // the program opts in: from here on these set a flag
//     dist::init_process_group();
//     for (int step = 0; step < 1000; ++step) {
//       train_step();
//       if (stop.requested_on_any_rank()) {           // all ranks get the same answer
//         save();
//         return dist::EXIT_REQUEUE;                  // "start me again", for lockstep run and batch scripts
//       }
//     }
//   }
//
//   if (const auto request = stop.requested_on_any_rank()) {          // SIGUSR1 means "save now", and go on
//     save();
//     if (request->signal == SIGUSR1) stop.clear();
//   }
//
// Collective  requested_on_any_rank(): every rank of the group, at the same steps of their loops.
// Cost        an all_reduce of 8 bytes, which waits for the slowest rank as the next step's gradients would.
//             With `every` = K only each K-th call makes one, and the others answer "no" at once: give it
//             where steps are short and ranks talk over a network.
// Answer      the signal that stands first in the list, if ranks got several; of ranks that got it, the
//             lowest. It stays the answer of all later calls, which make no all_reduce, until clear().
// Alone       before init_process_group() and with one rank, the flag of this process is the answer.
// Handlers    installed by the constructor and removed by the destructor (os/signal_flags.h); nothing else
//             of the library installs any. The first signal of a rank without this object ends it, as ever.
//             After a request that was not cleared the destructor leaves them: a scheduler signals the ranks
//             one by one, and a rank that learned of the request from another one may get its own signal
//             while it ends. That signal must not replace the rank's exit code.
// Threads     the caller must be one that may make collectives of the group at that place.
// Throws      InvalidArgument: no signals, a signal that cannot be caught, `every` below 1, a second
//             StopSignals while the first lives; and what an all_reduce throws.
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
  int rank = 0;  // of the group: the lowest that got it
};

struct StopSignalsOptions {
  int every = 1;                           // calls per all_reduce, the same on all ranks
  std::optional<ProcessGroup> group = {};  // the world if not given, as soon as there is one
};

class StopSignals {
 public:
  explicit StopSignals(std::vector<int> signals, StopSignalsOptions options = {});
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();

  std::optional<StopRequest> requested_on_any_rank();

  // The signal that this rank got, whatever the others got. Communicates nothing: for a place where the ranks
  // need not agree, such as a progress line.
  std::optional<int> requested_here() const;

  // Forgets the answer and, on this rank, its signal. All ranks, after the same answer. A signal that reaches
  // another rank later than that is a new request.
  void clear();

 private:
  std::vector<int> signals_;
  StopSignalsOptions options_;
  std::unique_ptr<SignalFlags> flags_;
  std::int64_t calls_ = 0;
  std::optional<StopRequest> agreed_;
};

}  // namespace lockstep

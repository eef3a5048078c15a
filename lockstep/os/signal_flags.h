// Signals as flags that a program reads when it likes. A library makes one only where the program has asked
// for it.
//
//   SignalFlags flags({SIGTERM, SIGUSR1});
//   if (flags.is_raised(SIGTERM)) save();
//   flags.clear(SIGTERM);
//
// While it lives, its handler replaces what the signals did before, also where they were ignored; afterwards
// that is back. The handler sets a flag and nothing else; system calls that it interrupts go on
// (SA_RESTART). One at a time in a process. A forked child has the handler, too, and flags of its own.
#pragma once

#include <csignal>
#include <span>
#include <utility>
#include <vector>

namespace lockstep {

class SignalFlags {
 public:
  // Fails: InvalidArgument when there is another one, for a number that is no signal, and for one that cannot
  // be caught (SIGKILL, SIGSTOP).
  explicit SignalFlags(std::span<const int> signals);
  SignalFlags(const SignalFlags&) = delete;
  SignalFlags& operator=(const SignalFlags&) = delete;
  ~SignalFlags();

  static bool is_raised(int signal);
  static void clear(int signal);

  // The handler stays when this object goes, so that these signals do nothing from then on.
  void keep_handler() { before_.clear(); }

 private:
  void restore();

  std::vector<std::pair<int, struct sigaction>> before_;
};

}  // namespace lockstep

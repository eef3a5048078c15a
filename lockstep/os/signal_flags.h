// SignalFlags: signals as flags that a program reads when it wants. The library creates one only if the
// program asks for it.
//
//   SignalFlags flags({SIGTERM, SIGUSR1});
//   if (flags.is_raised(SIGTERM)) save();
//   flags.clear(SIGTERM);
//
// While it lives, its handler replaces the signals' dispositions, also of ignored ones. The destructor
// restores them. The handler only sets a flag, and interrupted system calls continue (SA_RESTART). One object
// at a time in a process. A forked child has the handler too, and flags of its own.
#pragma once

#include <csignal>
#include <span>
#include <utility>
#include <vector>

namespace lockstep {

class SignalFlags {
 public:
  // Throws InvalidArgument if another object exists, if a number is not a signal, or if a signal cannot be
  // caught (SIGKILL, SIGSTOP).
  explicit SignalFlags(std::span<const int> signals);
  SignalFlags(const SignalFlags&) = delete;
  SignalFlags& operator=(const SignalFlags&) = delete;
  ~SignalFlags();

  static bool is_raised(int signal);
  static void clear(int signal);

  // Keeps the handler when this object is destroyed, so that these signals have no effect from then on.
  void keep_handler() { before_.clear(); }

 private:
  void restore();

  std::vector<std::pair<int, struct sigaction>> before_;
};

}  // namespace lockstep

// ProcessHandle: reports whether a process that is not a child of this one still lives. A reused pid does not
// mislead it.
//
//   ProcessHandle peer(pid);
//   if (!peer.alive()) throw PeerLost(...);
//   if (peer.state() == 'T') ...                     // stopped (SIGSTOP)
//
// Open it while the process is known to live, for example while its socket is connected. It uses a pidfd or,
// without that kernel feature, the process's start time in /proc. A zombie counts as dead.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "lockstep/os/fd.h"

namespace lockstep {

class ProcessHandle {
 public:
  explicit ProcessHandle(pid_t pid);

  pid_t pid() const { return pid_; }
  bool alive() const;
  // The state letter of /proc/PID/stat (R, S, D, T, Z, ...); '?' if unknown.
  char state() const;

 private:
  pid_t pid_;
  Fd pidfd_;
  std::uint64_t start_time_ = 0;  // used without a pidfd
};

// A descriptor that becomes readable when this process ends. This process passes it to others. Invalid if the
// kernel has no pidfd.
Fd own_handle();

}  // namespace lockstep

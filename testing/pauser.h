// Pauser: stops processes of a job and has them go on later, as Ctrl-Z and fg do.
//
//   std::optional<Pauser> pauser;
//   if (rank() == 0) pauser.emplace(pids_of(world()), 5s);    // half a second from now
//   ...
//   pauser.reset();                                            // waits until they go on
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/str.h"
#include "lockstep/comm/collectives/all_gather.h"

namespace lockstep::harness {

// A shell of its own, which nobody stops. Its end is the tests' business alone.
class Pauser {
 public:
  Pauser(const std::vector<int>& pids, std::chrono::seconds pause) {
    std::string list;
    for (const int pid : pids) list += str(' ', pid);
    const std::string script =
        str("sleep 0.5; kill -STOP", list, "; sleep ", pause.count(), "; kill -CONT", list);
    shell_ = fork();
    if (shell_ != 0) return;
    execl("/bin/sh", "sh", "-c", script.c_str(), nullptr);
    _exit(127);
  }
  Pauser(const Pauser&) = delete;
  Pauser& operator=(const Pauser&) = delete;
  ~Pauser() { waitpid(shell_, nullptr, 0); }

 private:
  pid_t shell_ = 0;
};

// Computes until this process has been stopped, and comes late by `more`, in which the others look at their
// clocks.
inline void compute_over_a_pause(std::chrono::milliseconds more) {
  using Clock = std::chrono::steady_clock;
  for (auto last = Clock::now();;) {
    const auto now = Clock::now();  // read once a turn: a stop between two readings would be missed
    if (now - last > std::chrono::seconds(2)) break;
    last = now;
  }
  std::this_thread::sleep_for(more);
}

inline std::vector<int> pids_of(const ProcessGroup& group) {
  const int mine = getpid();
  std::vector<int> all(static_cast<std::size_t>(group.size()));
  comm::all_gather(group, std::span<const int>(&mine, 1), std::span(all)).wait();
  return all;
}

}  // namespace lockstep::harness

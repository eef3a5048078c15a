// The half of spawn() that runs in a rank, and its reports to the process that started it. Only job/spawn.cpp
// uses it.
//
// The rank holds the write end of a pipe. It writes REACHED when main has reached the call. If fn throws,
// FAILED follows, then the ErrorCode as a number, ':' and the text. If main reached another call, it writes
// LOST and a text.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "lockstep/os/process.h"

namespace lockstep {

inline constexpr char SPAWN_REACHED = 'R';
inline constexpr char SPAWN_FAILED = 'E';
inline constexpr char SPAWN_LOST = 'L';

// One call of spawn() and its ranks, in the form of LOCKSTEP_SPAWN.
struct SpawnCall {
  unsigned number = 0;  // number of earlier calls in the process
  int ranks = 0;
  pid_t parent = 0;
  int report = -1;    // descriptor of the pipe
  std::string place;  // "main.cpp:12"

  std::string text() const;
};

// The call that this process was started for; nullopt if spawn() did not start this process.
std::optional<SpawnCall> spawned_for();

// Called in a rank: main has reached the call `here`. Returns if it is an earlier call; else runs fn and ends
// the process.
void replay(const SpawnCall& wanted, const SpawnCall& here, const std::function<void(int rank)>& fn);

}  // namespace lockstep

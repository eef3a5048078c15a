// The half of spawn() that runs in a rank, and what it tells the process that started it. Used by
// job/spawn.cpp only.
//
// The rank holds the write end of a pipe. Into it go bytes: REACHED when main has come to the call, then, if
// fn throws, FAILED, the ErrorCode as a number, ':' and the text; or LOST and a text when main came to
// another call.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "lockstep/os/process.h"

namespace lockstep {

inline constexpr char SPAWN_REACHED = 'R';
inline constexpr char SPAWN_FAILED = 'E';
inline constexpr char SPAWN_LOST = 'L';

// One call of spawn(): which rank runs what, as LOCKSTEP_SPAWN carries it.
struct SpawnCall {
  unsigned number = 0;  // calls before it in the process
  int ranks = 0;
  pid_t parent = 0;
  int report = -1;    // descriptor of the pipe
  std::string place;  // "main.cpp:12"

  std::string text() const;
};

// The call that this process was started for; nullopt in a process that spawn() did not start.
std::optional<SpawnCall> spawned_for();

// In a rank: `here` is the call that main has come to. Returns if it is an earlier one; else runs fn and ends
// the process.
void replay(const SpawnCall& wanted, const SpawnCall& here, const std::function<void(int rank)>& fn);

}  // namespace lockstep

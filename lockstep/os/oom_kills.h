// OomKills: whether the kernel's out-of-memory killer ended a process. SIGKILL alone does not tell.
//
//   const OomKills before = oom_kills();
//   ... a child was killed by SIGKILL ...
//   message += who_killed(before, oom_kills());  // " by the kernel's out-of-memory killer (...)", or nothing
//
// Counts come from this process's cgroup (version 2: memory.events, version 1: memory.oom_control), which its
// children share unless they are moved, and from the whole machine (/proc/vmstat). A counter that cannot be
// read is ignored.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep {

struct OomKills {
  std::string cgroup;  // as /proc/self/cgroup names it
  std::optional<std::uint64_t> in_cgroup;
  std::optional<std::uint64_t> on_machine;
};

// Tests pass a folder that stands for "/".
OomKills oom_kills(const std::string& root = "");

std::string who_killed(const OomKills& before, const OomKills& now);

}  // namespace lockstep

// Whether the kernel's out-of-memory killer was at work: what SIGKILL alone does not say.
//
//   const OomKills before = oom_kills();
//   ... a child was killed by SIGKILL ...
//   message += who_killed(before, oom_kills());  // " by the kernel's out-of-memory killer (...)", or nothing
//
// Counted by the control group of this process (v2: memory.events, v1: memory.oom_control), which children
// share unless somebody moves them, and for the whole machine (/proc/vmstat). What cannot be read is not
// counted.
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

// `root`: for tests, where /proc and /sys are looked for.
OomKills oom_kills(const std::string& root = "");

std::string who_killed(const OomKills& before, const OomKills& now);

}  // namespace lockstep

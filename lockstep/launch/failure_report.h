// Says which rank's failure was the cause, once, for people and for programs. Pure.
//
//   lockstep: rank 2 of 4 failed first: killed by SIGKILL, pid 4121 on node7, after 12.3 s
//   lockstep: its last lines:
//   lockstep:   [2] epoch 3
//   lockstep: because of it: rank 0 exit code 1, rank 1 exit code 1, rank 3 stopped
//
// With several machines the numbers are those of the job, and the first line names the node.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/launch/launch_spec.h"

namespace lockstep {

// The index into `deaths` (in the order in which they happened) of the one that caused the others; nullopt when none
// failed on its own. The first failure is the cause, with one exception: a process killed by a signal is reported by the
// kernel only when all its memory is gone, and meanwhile another rank may have noticed and ended. So a rank killed by
// SIGKILL, SIGSEGV and the like within 100 ms after a rank that exited or aborted goes before it.
std::optional<std::size_t> first_failure(std::span<const RankResult> deaths);

struct FailureReport {
  std::string job_id;
  std::string host;
  std::vector<std::string> command;
  std::string log_folder;  // empty: none
  RunResult result;        // with first_failure set, or other_node
  NodePlace place;         // of this launcher
};

std::vector<std::string> failure_summary(const FailureReport& report);  // one entry a line
std::string failure_json(const FailureReport& report);

}  // namespace lockstep

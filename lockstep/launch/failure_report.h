// Reports which rank's failure was the cause (first_cause.h), for people and for programs. Pure.
//
//   lockstep: rank 2 of 4 failed first: killed by SIGKILL, pid 4121 on node7, after 12.3 s
//   lockstep: its last lines:
//   lockstep:   [2] epoch 3
//   lockstep: because of it: rank 0 exit code 1, rank 1 exit code 1, rank 3 stopped
//
// On several machines the numbers are those of the job, and the first line names the node. The number of
// lines does not grow with the job.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "lockstep/launch/launch_spec.h"

namespace lockstep {

struct FailureReport {
  std::string job_id;
  std::string host;
  std::vector<std::string> command;
  std::string log_folder;  // empty if there is none
  RunResult result;        // with first_failure set, or other_node
  NodePlace place;         // the place of this launcher
};

std::vector<std::string> failure_summary(const FailureReport& report);  // one entry per line
std::string failure_json(const FailureReport& report);

// "rank 2 failed first: exit code 7, pid 4121 on node7, after 12.3 s; its last words: \"...\"", the line that
// all launchers of the job print.
std::string failure_in_a_line(const RankResult& rank, const FirstCause& cause, const std::string& host);

}  // namespace lockstep

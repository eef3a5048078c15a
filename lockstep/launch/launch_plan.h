// The plan of a launch: the environment variables and cores of each rank. It is made before the first rank
// starts. Pure and printable (`lockstep run --dry-run`). The supervisor carries it out.
#pragma once

#include <string>
#include <vector>

#include "lockstep/launch/core_plan.h"
#include "lockstep/launch/launch_spec.h"

namespace lockstep {

// What the decision depends on besides the spec.
struct JobFacts {
  std::string job_id;                    // 16 hexadecimal digits
  int master_port = 0;                   // was free; for others' use
  std::string log_folder;                // empty: no files
  int terminal_columns = 0;              // 0: standard output is not a terminal
  std::vector<std::string> environment;  // the launcher's own, "NAME=value"
  CpuTopology machine;
  int restarts = 0;  // of the job before this start
};

struct LaunchPlan {
  std::string executable;            // the file that is run
  std::vector<std::string> command;  // argv, unchanged
  bool pass_local_rank = false;      // with --local_rank=N after the program
  int first_rank = 0;                // of this machine
  bool has_hub = false;              // the ranks inherit sockets to each other
  CorePlan cores;
  std::vector<std::vector<std::string>> variables;  // per rank: the ones we set, "NAME=value"
  std::vector<std::string> inherited;  // the launcher's, without those we set or that must not reach a rank
};

LaunchPlan launch_plan(const LaunchSpec& spec, const JobFacts& facts);

// The whole environment of one rank; `hub_fds` are the descriptors of LOCKSTEP_HUB_FDS (none for a job of
// one).
std::vector<std::string> rank_environment(const LaunchPlan& plan, int rank, const std::vector<int>& hub_fds);

// argv of local rank `rank`.
std::vector<std::string> rank_command(const LaunchPlan& plan, int rank);

// One paragraph per rank: variables, CPUs, command. No shell reads it, so arguments are quoted for people
// only.
std::string describe(const LaunchPlan& plan);

}  // namespace lockstep

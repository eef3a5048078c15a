// launch_plan: the environment variables and cores of each rank, decided before the first rank starts. Pure
// and printable (`lockstep run --dry-run`). The supervisor carries it out.
#pragma once

#include <string>
#include <vector>

#include "lockstep/launch/core_plan.h"
#include "lockstep/launch/launch_spec.h"

namespace lockstep {

// The facts that the plan depends on, besides the spec.
struct JobFacts {
  std::string job_id;                    // 16 hexadecimal digits
  int master_port = 0;                   // was free a moment ago; for other libraries
  std::string log_folder;                // empty if there are no log files
  int terminal_columns = 0;              // 0 if standard output is not a terminal
  std::vector<std::string> environment;  // the launcher's own, "NAME=value"
  CpuTopology machine;
  int restarts = 0;  // restarts of the job before this start
};

struct LaunchPlan {
  std::string executable;            // the file to run
  std::vector<std::string> command;  // argv, unchanged
  bool pass_local_rank = false;      // insert --local_rank=N as the program's first argument
  int first_rank = 0;                // of the ranks on this machine
  bool has_hub = false;              // the ranks inherit sockets to each other
  CorePlan cores;
  // Per rank: the variables that the launcher sets, "NAME=value".
  std::vector<std::vector<std::string>> variables;
  // The launcher's variables, without those above and those that must not reach a rank.
  std::vector<std::string> inherited;
};

LaunchPlan launch_plan(const LaunchSpec& spec, const JobFacts& facts);

// The whole environment of one rank. `hub_fds` are the descriptors of LOCKSTEP_HUB_FDS; a job of one rank has
// none.
std::vector<std::string> rank_environment(const LaunchPlan& plan, int rank, const std::vector<int>& hub_fds);

// argv of local rank `rank`.
std::vector<std::string> rank_command(const LaunchPlan& plan, int rank);

// One paragraph per rank: variables, CPUs, command. The quotes are for people; no shell reads the text.
std::string describe(const LaunchPlan& plan);

}  // namespace lockstep

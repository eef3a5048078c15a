// prepare_job: gathers the facts that a launch depends on (machine, environment, a job id, a port, a folder)
// and makes the plan. Starts no process.
#pragma once

#include <memory>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/launch/launch_plan.h"
#include "lockstep/launch/launch_spec.h"
#include "lockstep/launch/node_group.h"
#include "lockstep/os/private_folder.h"

namespace lockstep {

struct PreparedJob {
  LaunchSpec spec;
  JobFacts facts;
  LaunchPlan plan;
  std::optional<PrivateFolder> logs;     // of this start
  std::string log_root = {};             // the job's folder, which contains the logs of its restarts
  std::string no_logs = {};              // why there are no logs although the user wanted them
  std::optional<NodeAccess> nodes = {};  // only with several machines
  NodeStores stores = {};                // with several machines: the launcher's connections to the store
  pid_t store_server = 0;                // node 0: the process that serves the store
};

// Throws ProgramError before it creates anything. Throws SystemError if this process may open too few files
// for so many ranks, or if the log folder is needed and cannot be made.
PreparedJob prepare_job(const LaunchSpec& spec);

// For a job on several machines. First waits for the launchers of the other machines (node_group.h), to know
// this launcher's ranks.
PreparedJob prepare_job_with_others(const LaunchSpec& spec, const NodeAccess& access, Deadline deadline);

// Prepares the same job again after all of it has ended: with a port that is free now, and a log folder
// "restart-1" in the job's. If that folder cannot be made, `no_logs` has the reason.
void prepare_restart(PreparedJob& job);

// The program cannot be started. exit_code(): EXIT_NOT_FOUND or EXIT_NOT_EXECUTABLE.
class ProgramError : public InvalidArgument {
 public:
  ProgramError(const std::string& message, int exit_code) : InvalidArgument(message), exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

// The error for a failed start with errno value `error_number`.
ProgramError program_error(const std::string& program, int error_number);

}  // namespace lockstep

// Gathers what a launch depends on (machine, environment, a name, a port, a folder) and makes the plan.
// Starts nothing.
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
  std::string log_root = {};             // the job's folder; a restarted job's logs lie in it
  std::string no_logs = {};              // why there are none although there should be
  std::optional<NodeAccess> nodes = {};  // several machines
  NodeStores stores = {};                // several machines: the launcher's connections to the store
  pid_t store_server = 0;                // node 0: the process that serves the store
};

// Fails: ProgramError, before anything exists; SystemError when this process may open too few files for so
// many ranks, or the log folder is needed and cannot be made.
PreparedJob prepare_job(const LaunchSpec& spec);

// For a job on several machines: first waits for the launchers of the others (node_group.h), to know this
// one's ranks.
PreparedJob prepare_job_with_others(const LaunchSpec& spec, const NodeAccess& access, Deadline deadline);

// The same job once more, after all of it has ended: a port that is free now, and a folder for its logs,
// "restart-1" in the job's. Never fails for want of a folder; `no_logs` says why there is none.
void prepare_restart(PreparedJob& job);

// The program cannot be started. exit_code(): EXIT_NOT_FOUND or EXIT_NOT_EXECUTABLE.
class ProgramError : public InvalidArgument {
 public:
  ProgramError(const std::string& message, int exit_code) : InvalidArgument(message), exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

// The error that `error_number` of a failed start means.
ProgramError program_error(const std::string& program, int error_number);

}  // namespace lockstep

// Every environment variable that Lockstep reads or sets, in one table, and the only code that reads them.
//
//   const JobEnvironment job = job_environment();       // this process's place in a job, and its launcher
//   if (auto value = env("LOCKSTEP_BACKEND")) ...  // a name that is not in the table throws InternalError
//
// Nothing outside this file calls getenv. `lockstep info` prints the table.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/visibility.h"

namespace LOCKSTEP_PUBLIC lockstep {

struct EnvironmentVariable {
  std::string_view name;
  std::string_view set_by;  // "user", "lockstep run", "torchrun", "Slurm", "Open MPI", "MPICH"
  std::string_view meaning;
};

std::span<const EnvironmentVariable> environment_table();

// The value of a variable of the table; nullopt if it is unset or empty.
std::optional<std::string> env(std::string_view name);

// The same as a number. Throws InvalidArgument that names variable, value and range, for any other text.
std::optional<long> env_number(std::string_view name, long minimum, long maximum);

// Names of LOCKSTEP_* variables that are set but not in the table. They are probably misspelt.
std::vector<std::string> unknown_lockstep_variables();
// The same of variables that begin with another prefix, such as "HOROVOD_".
std::vector<std::string> unknown_variables(std::string_view prefix);

// All variables that are set, as "NAME=value", for a launcher, which passes them on.
std::vector<std::string> whole_environment();

// How this process was started.
enum class Launcher : std::uint8_t {
  NONE,          // by no launcher: it is a job of one process
  LOCKSTEP_RUN,  // `lockstep run`, or spawn()
  TORCHRUN,
  BY_HAND,  // RANK and WORLD_SIZE are set, but not by a launcher above
  OPTIONS,  // the program itself gives rank and world size
  SLURM,
  OPEN_MPI,
  MPICH,
};
// "none", "lockstep", "torchrun", "env", "options", "Slurm", "Open MPI", "MPICH".
std::string_view name_of(Launcher launcher);

// This process's place in a job, as the environment describes it.
struct JobEnvironment {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;        // UNKNOWN if it is not given
  int local_world_size = 1;  // UNKNOWN if it is not given
  Launcher source = Launcher::NONE;
  // the launcher's name for the job, the same on all machines, and a new one after a restart; empty if it
  // gives none
  std::string job_id;
  int restarts = 0;  // how many times the launcher has restarted the job

  static constexpr int UNKNOWN = -1;
  bool is_single_node() const { return local_world_size == world_size; }  // only if the launcher gives both
};

// First match wins: RANK + WORLD_SIZE (set by `lockstep run`, torchrun, or by hand); Slurm inside an srun
// step (an salloc shell is alone), unless an mpirun in the step has started this process; Open MPI, MPICH;
// otherwise a job of one process. Throws InvalidArgument if a variable is not a number, if rank >= world
// size, or if one of a pair is missing ("RANK is set but WORLD_SIZE is not"). The local pair is UNKNOWN if
// the launcher does not give it (mostly by hand). comm/meeting/job_identity.h tells jobs of one machine
// apart.
JobEnvironment job_environment();

}  // namespace lockstep

// Every environment variable that Lockstep reads or sets, in one table, and the one place that reads them.
//
//   const JobEnvironment job = job_environment();       // who am I, and who says so
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

// The value of a variable of the table; nullopt when unset or empty.
std::optional<std::string> env(std::string_view name);

// The same as a number. Throws InvalidArgument, naming variable, value and range, for anything else.
std::optional<long> env_number(std::string_view name, long minimum, long maximum);

// Names of LOCKSTEP_* variables that are set but not in the table: most likely misspelt.
std::vector<std::string> unknown_lockstep_variables();

// Everything that is set, "NAME=value": for a launcher, which passes it on.
std::vector<std::string> whole_environment();

// Who started this process: a launcher, or somebody by hand.
enum class Launcher : std::uint8_t {
  NONE,          // nobody: it is a job of one
  LOCKSTEP_RUN,  // `lockstep run`, or spawn()
  TORCHRUN,
  BY_HAND,  // RANK and WORLD_SIZE are set, and by none of the above
  OPTIONS,  // the program itself says rank and world size
  SLURM,
  OPEN_MPI,
  MPICH,
};
// "none", "lockstep", "torchrun", "env", "options", "Slurm", "Open MPI", "MPICH".
std::string_view name_of(Launcher launcher);

// What the environment says about this process's place in a job.
struct JobEnvironment {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;        // UNKNOWN: nobody says
  int local_world_size = 1;  // UNKNOWN: nobody says
  Launcher source = Launcher::NONE;
  std::string job_id;  // the launcher's name for the job, the same on all machines, another one after a
                       // restart; empty: it gives none
  int restarts = 0;    // how often the launcher has started the job anew

  static constexpr int UNKNOWN = -1;
  bool is_single_node() const { return local_world_size == world_size; }  // the launcher says so
};

// First match wins: RANK + WORLD_SIZE (set by `lockstep run`, torchrun, or by hand), Slurm inside an srun
// step (an salloc shell is alone), unless an mpirun in the step has started this process; Open MPI, MPICH;
// otherwise a job of one process. Throws InvalidArgument when a variable is not a number, when rank >= world
// size, or when one of a pair is missing ("RANK is set but WORLD_SIZE is not"). The local pair is UNKNOWN
// where the launcher does not give it (by hand, mostly). What tells jobs of one machine apart is in
// comm/meeting/job_identity.h.
JobEnvironment job_environment();

}  // namespace lockstep

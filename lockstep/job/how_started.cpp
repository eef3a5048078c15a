#include "lockstep/job/how_started.h"

#include <array>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

struct StartWords {
  Launcher source;
  std::string_view words;
  std::vector<std::string_view> variables;  // the variables that identify this process and its job
};

const std::array<StartWords, 7>& launchers() {
  static const std::array<StartWords, 7> table = {{
      {Launcher::LOCKSTEP_RUN,
       "by `lockstep run`",
       {"LOCKSTEP_JOB_ID", "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}},
      {Launcher::TORCHRUN,
       "by torchrun",
       {"TORCHELASTIC_RUN_ID", "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}},
      {Launcher::BY_HAND,
       "by hand",
       {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}},
      {Launcher::OPTIONS,
       "with a rank and a world size from the program",
       {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}},
      {Launcher::SLURM,
       "by Slurm",
       {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_PROCID", "SLURM_NTASKS", "MASTER_ADDR", "MASTER_PORT"}},
      {Launcher::OPEN_MPI,
       "by Open MPI",
       {"PMIX_NAMESPACE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}},
      {Launcher::MPICH, "by MPICH", {"PMI_RANK", "PMI_SIZE", "MASTER_ADDR", "MASTER_PORT"}},
  }};
  return table;
}

std::string values_of(const std::vector<std::string_view>& variables) {
  constexpr std::size_t LONGEST = 40;
  std::string text;
  for (const std::string_view name : variables) {
    if (const auto value = env(name))
      text += str(text.empty() ? " (" : ", ", name, '=', printable(*value, LONGEST));
  }
  return text.empty() ? text : text + ")";
}

std::string meeting_place(const RendezvousFacts& facts) {
  try {
    return ", and meets the others at " + describe(plan_rendezvous(facts));
  } catch (const InvalidArgument&) {  // backend mpi needs no meeting place
    return "";
  }
}

}  // namespace

std::string how_started(const RendezvousFacts& facts) {
  for (const StartWords& words : launchers()) {
    if (words.source == facts.place.source)
      return str("this rank was started ", words.words, values_of(words.variables), meeting_place(facts));
  }
  return "this process was started alone";
}

}  // namespace lockstep

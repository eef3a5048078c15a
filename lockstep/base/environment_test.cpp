#include "lockstep/base/environment.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// An environment with only the given variables of the table set; the old one comes back at the end.
class Environment {
 public:
  explicit Environment(const std::vector<std::pair<std::string, std::string>>& variables) {
    for (const auto& row : environment_table()) {
      if (const auto value = env(row.name)) saved_.emplace_back(row.name, *value);
      unsetenv(std::string(row.name).c_str());
    }
    for (const auto& [name, value] : variables) set(name, value);
  }
  ~Environment() {
    for (const auto& name : set_) unsetenv(name.c_str());
    for (const auto& [name, value] : saved_) setenv(name.c_str(), value.c_str(), 1);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  void set(const std::string& name, const std::string& value) {
    setenv(name.c_str(), value.c_str(), 1);
    set_.push_back(name);
  }
  std::vector<std::pair<std::string, std::string>> saved_;
  std::vector<std::string> set_;
};

TEST(Environment, NothingSetIsAJobOfOne) {
  const Environment environment({});
  const JobEnvironment job = job_environment();
  EXPECT_EQ(job.rank, 0);
  EXPECT_EQ(job.world_size, 1);
  EXPECT_EQ(job.source, Launcher::NONE);
}

TEST(Environment, TorchrunVariablesCount) {
  const Environment environment({{"RANK", "5"},
                                 {"WORLD_SIZE", "8"},
                                 {"LOCAL_RANK", "1"},
                                 {"LOCAL_WORLD_SIZE", "4"},
                                 {"TORCHELASTIC_RUN_ID", "job"}});
  const JobEnvironment job = job_environment();
  EXPECT_EQ(job.rank, 5);
  EXPECT_EQ(job.local_rank, 1);
  EXPECT_EQ(job.local_world_size, 4);
  EXPECT_FALSE(job.is_single_node());
  EXPECT_EQ(job.source, Launcher::TORCHRUN);
  EXPECT_THAT(job.job_id, ::testing::StartsWith("job"));
}

TEST(Environment, JobsOfTorchrunWithoutANameDifferByTheirPort) {
  const auto name = [](const std::string& port, const std::string& restart) {
    const Environment environment({{"RANK", "0"},
                                   {"WORLD_SIZE", "2"},
                                   {"TORCHELASTIC_RUN_ID", "none"},
                                   {"MASTER_PORT", port},
                                   {"TORCHELASTIC_RESTART_COUNT", restart}});
    return job_environment().job_id;
  };
  EXPECT_NE(name("29500", "0"), name("29501", "0"));
  EXPECT_NE(name("29500", "0"), name("29500", "1"));
}

TEST(Environment, ARestartedJobOfOurLauncherHasANameOfItsOwn) {
  const auto place = [](const std::string& restarts) {
    const Environment environment({{"RANK", "0"},
                                   {"WORLD_SIZE", "2"},
                                   {"LOCKSTEP_JOB_ID", "0123"},
                                   {"LOCKSTEP_RESTART_COUNT", restarts},
                                   {"TORCHELASTIC_RESTART_COUNT", "7"}});
    return job_environment();
  };
  EXPECT_EQ(place("0").job_id, "0123");
  EXPECT_EQ(place("0").restarts, 0);
  EXPECT_EQ(place("2").restarts, 2);
  EXPECT_NE(place("1").job_id, place("2").job_id);
}

TEST(Environment, WhatNobodySaysIsUnknown) {
  const Environment environment({{"RANK", "1"}, {"WORLD_SIZE", "2"}});
  const JobEnvironment job = job_environment();
  EXPECT_EQ(job.local_rank, JobEnvironment::UNKNOWN);
  EXPECT_EQ(job.local_world_size, JobEnvironment::UNKNOWN);
  EXPECT_FALSE(job.is_single_node());
}

TEST(Environment, SlurmListsTheTasksOfEveryMachine) {
  const auto local_size = [](const std::string& list, const std::string& node) {
    const Environment environment({{"SLURM_STEP_ID", "0"},
                                   {"SLURM_PROCID", "0"},
                                   {"SLURM_NTASKS", "9"},
                                   {"SLURM_LOCALID", "0"},
                                   {"SLURM_STEP_TASKS_PER_NODE", list},
                                   {"SLURM_NODEID", node}});
    return job_environment().local_world_size;
  };
  EXPECT_EQ(local_size("9", "0"), 9);
  EXPECT_EQ(local_size("2(x3),1,2", "0"), 2);
  EXPECT_EQ(local_size("2(x3),1,2", "2"), 2);
  EXPECT_EQ(local_size("2(x3),1,2", "3"), 1);
  EXPECT_EQ(local_size("2(x3),1,2", "4"), 2);
  for (const char* nonsense : {"", "x", "2(x3", "2(x3),", "-1", "10", "0(x9)"}) {
    EXPECT_EQ(local_size(nonsense, "5"), JobEnvironment::UNKNOWN) << nonsense;
  }
}

TEST(Environment, SlurmCountsOnlyInsideAStep) {
  std::vector<std::pair<std::string, std::string>> salloc = {
      {"SLURM_JOB_ID", "17"}, {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "2"}};
  {
    const Environment environment(salloc);
    EXPECT_EQ(job_environment().source, Launcher::NONE);
  }
  salloc.emplace_back("SLURM_STEP_ID", "3");
  salloc.emplace_back("SLURM_LOCALID", "2");
  const Environment environment(salloc);
  const JobEnvironment job = job_environment();
  EXPECT_EQ(job.rank, 2);
  EXPECT_EQ(job.world_size, 4);
  EXPECT_EQ(job.job_id, "17.3");
}

// salloc with use_interactive_step: the shell is a step of one task in an allocation of two.
TEST(Environment, AProgramInAnAllocationsInteractiveShellIsAlone) {
  std::vector<std::pair<std::string, std::string>> shell = {
      {"SLURM_JOB_ID", "17"}, {"SLURM_STEP_ID", "4294967290"},   {"SLURM_NTASKS", "2"},
      {"SLURM_PROCID", "0"},  {"SLURM_STEP_NUM_TASKS", "1"},     {"SLURM_LOCALID", "0"},
      {"SLURM_NODEID", "0"},  {"SLURM_STEP_TASKS_PER_NODE", "1"}};
  {
    const Environment environment(shell);
    EXPECT_EQ(job_environment().world_size, 1);
    EXPECT_EQ(job_environment().local_world_size, 1);
  }
  // An mpirun there: the step is the shell's, not the ranks'.
  shell.insert(shell.end(), {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}});
  const Environment environment(shell);
  EXPECT_EQ(job_environment().source, Launcher::OPEN_MPI);
  EXPECT_EQ(job_environment().rank, 1);
}

TEST(Environment, TheInnerOfTwoLaunchersCounts) {
  const std::vector<std::pair<std::string, std::string>> both = {
      {"SLURM_JOB_ID", "17"}, {"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "0"},
      {"SLURM_NTASKS", "1"},  {"PMI_RANK", "1"},      {"PMI_SIZE", "3"}};
  {
    const Environment environment(both);  // srun --mpi=pmi2
    EXPECT_EQ(job_environment().source, Launcher::SLURM);
  }
  auto hydra = both;
  hydra.emplace_back("HYDI_CONTROL_FD", "7");
  {
    const Environment environment(hydra);  // mpiexec has started its own process with srun
    EXPECT_EQ(job_environment().source, Launcher::MPICH);
    EXPECT_EQ(job_environment().world_size, 3);
  }
  hydra.emplace_back("SLURM_TASK_PID", std::to_string(getpid()));
  const Environment environment(hydra);  // a rank of mpiexec has started an srun
  EXPECT_EQ(job_environment().source, Launcher::SLURM);
}

TEST(Environment, WhatTellsJobsApartEverywhere) {
  const auto name = [](std::vector<std::pair<std::string, std::string>> variables) {
    const Environment environment(variables);
    return job_environment().job_id;
  };
  const std::vector<std::pair<std::string, std::string>> open_mpi = {
      {"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"PMIX_NAMESPACE", "1141833729"}};
  auto random = open_mpi;
  random.emplace_back("OMPI_MCA_orte_precondition_transports", "9b25ba31a746c4c8-3cd1818d3f5b670e");
  EXPECT_NE(name(open_mpi), name(random));
  const std::vector<std::pair<std::string, std::string>> step = {
      {"SLURM_JOB_ID", "17"}, {"SLURM_STEP_ID", "3"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}};
  auto cluster = step;
  cluster.emplace_back("SLURM_CLUSTER_NAME", "east");
  EXPECT_EQ(name(cluster), "17.3@east");
  EXPECT_EQ(name({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"HYDI_CONTROL_FD", "7"}}), "")
      << "the number of a descriptor is the same in every job";
}

TEST(Environment, MpiLaunchersAreKnown) {
  {
    const Environment environment({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}});
    EXPECT_EQ(job_environment().source, Launcher::OPEN_MPI);
    EXPECT_EQ(job_environment().rank, 1);
  }
  const Environment environment({{"PMI_RANK", "1"}, {"PMI_SIZE", "3"}});
  EXPECT_EQ(job_environment().source, Launcher::MPICH);
  EXPECT_EQ(job_environment().world_size, 3);
}

TEST(Environment, MistakesAreNamed) {
  const auto error = [](const std::vector<std::pair<std::string, std::string>>& variables) {
    const Environment environment(variables);
    try {
      job_environment();
    } catch (const InvalidArgument& refused) {
      return std::string(refused.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(error({{"RANK", "0"}}), AllOf(HasSubstr("WORLD_SIZE"), HasSubstr("RANK is set")));
  EXPECT_THAT(error({{"WORLD_SIZE", "2"}}), HasSubstr("WORLD_SIZE is set but RANK is not"));
  EXPECT_THAT(error({{"RANK", "2"}, {"WORLD_SIZE", "2"}}),
              HasSubstr("RANK=2 must be smaller than WORLD_SIZE=2"));
  EXPECT_THAT(error({{"RANK", "x\n"}, {"WORLD_SIZE", "2"}}),
              HasSubstr("RANK=\"x\\x0a\" must be a number from 0"));
  EXPECT_THAT(error({{"PMI_ID", "1"}}), AllOf(HasSubstr("PMI_SIZE is not"), HasSubstr("-pmi-port")));
  EXPECT_THAT(error({{"RANK", "-1"}, {"WORLD_SIZE", "2"}}), HasSubstr("RANK=\"-1\""));
}

TEST(Environment, MisspeltVariablesOfOursAreFound) {
  setenv("LOCKSTEP_TIMOUT", "3", 1);
  EXPECT_THAT(unknown_lockstep_variables(), ::testing::Contains("LOCKSTEP_TIMOUT"));
  unsetenv("LOCKSTEP_TIMOUT");
}

TEST(Environment, OnlyTheTableIsRead) {
  EXPECT_THAT([] { env("HOME"); }, ThrowsMessage<InternalError>(HasSubstr("HOME is not in the table")));
}

}  // namespace
}  // namespace lockstep

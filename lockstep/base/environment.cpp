#include "lockstep/base/environment.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

extern "C" char** environ;  // NOLINT(readability-redundant-declaration): not declared by <cstdlib>

namespace lockstep {
namespace {

constexpr std::array TABLE = std::to_array<EnvironmentVariable>({
    {"RANK", "lockstep run, torchrun", "number of this process in the job, from 0"},
    {"WORLD_SIZE", "lockstep run, torchrun", "number of processes in the job"},
    {"LOCAL_RANK", "lockstep run, torchrun", "number of this process on its machine, from 0"},
    {"LOCAL_WORLD_SIZE", "lockstep run, torchrun", "number of the job's processes on this machine"},
    {"MASTER_ADDR", "lockstep run, torchrun",
     "where the ranks of several machines meet: address of rank 0's machine"},
    {"MASTER_PORT", "lockstep run, torchrun",
     "its port; on one machine it is for other libraries, Lockstep does not open it"},
    {"GROUP_RANK", "lockstep run, torchrun", "number of this machine in the job, from 0"},
    {"GROUP_WORLD_SIZE", "lockstep run, torchrun", "number of machines in the job"},
    {"ROLE_RANK", "lockstep run, torchrun", "as RANK"},
    {"ROLE_WORLD_SIZE", "lockstep run, torchrun", "as WORLD_SIZE"},
    {"OMP_NUM_THREADS", "lockstep run", "this rank's share of the cores, unless the user set it"},
    {"LOCKSTEP_JOB_ID", "lockstep run", "random name of the job"},
    {"LOCKSTEP_HUB_FDS", "lockstep run", "inherited sockets through which the ranks of one machine meet"},
    {"LOCKSTEP_STORE", "lockstep run",
     "launcher: the launcher serves the store at MASTER_ADDR:MASTER_PORT, else rank 0"},
    {"LOCKSTEP_RESTART_COUNT", "lockstep run", "how often the job was started anew (--max-restarts)"},
    {"LOCKSTEP_SECRET_FD", "lockstep run", "inherited descriptor with the job's secret"},
    {"LOCKSTEP_FAILURE_FD", "lockstep run",
     "inherited socket by which a rank tells the launcher of which kind its failure is and whose"},
    {"LOCKSTEP_SECRET_FILE", "user",
     "file (mode 0600) with the job's secret, the same on every machine: head -c 32 /dev/urandom > FILE"},
    {"LOCKSTEP_SOCKET_IFNAME", "user",
     "network interface at which other machines reach this one, such as eth0"},
    {"LOCKSTEP_TCP_CONNECTIONS", "user",
     "TCP connections between every two ranks, 1 to 16; that of rank 0 counts (default 1; more where the "
     "network limits each connection)"},
    {"LOCKSTEP_HOST_TIMEOUT", "user",
     "seconds after which another machine that does not answer over TCP counts as lost (default 15)"},
    {"LOCKSTEP_CORE_LIBRARY", "user",
     "Python: path of liblockstep_core.so (default: the one in the package, else the system's)"},
    {"LOCKSTEP_COMMAND", "user",
     "Python: path of the command lockstep, for python -m lockstep.run (default: the one in the package, "
     "else "
     "in PATH)"},
    {"LOCKSTEP_ELASTIC_DIR", "user",
     "Python, hvd.elastic: folder for the commits of one run, from which a restart goes on (default: none)"},
    {"LOCKSTEP_SPAWN", "spawn()", "which call of spawn() this process was started for"},
    {"LOCKSTEP_TERMINAL", "lockstep run",
     "columns of the launcher's terminal, for rank 0; unset when output is not a terminal"},
    {"LOCKSTEP_LOG_DIR", "lockstep run", "folder with one output file per rank"},
    {"LOCKSTEP_BACKEND", "user",
     "backend for init_process_group(\"auto\"): self, shm, tcp, hierarchical, mpi, "
     "hierarchical+mpi, gloo, hierarchical+gloo, nccl, hierarchical+nccl, or cpu:NAME,cuda:nccl"},
    {"LOCKSTEP_VIRTUAL_RANKS", "user, lockstep run",
     "virtual ranks of init_process_group(): the same bits on any number of processes up to this one"},
    {"LOCKSTEP_NODE", "user",
     "ranks with another value count as on another machine, for the hierarchical backends (default: as it "
     "is)"},
    {"LOCKSTEP_MPI", "user",
     "MPI of backend mpi: openmpi, mpich, or the path of a module (default: the program's or the "
     "launcher's)"},
    {"LOCKSTEP_NCCL", "user",
     "path of libnccl.so.2, for backend nccl (default: the one of libtorch, or where the loader looks)"},
    {"LOCKSTEP_TIMEOUT", "user",
     "seconds without progress after which a wait fails (default 1800); those in which the process is "
     "stopped do "
     "not count"},
    {"LOCKSTEP_WARN_AFTER", "user", "seconds after which a wait names the rank it waits for (default 5)"},
    {"LOCKSTEP_ALLOCATOR", "user",
     "off: tensors stay with libtorch's own CPU allocator (default: caching, with DistributedDataParallel)"},
    {"LOCKSTEP_DEBUG", "user",
     "on: a buffer that is written between an asynchronous call and its wait is found, at the price of a "
     "copy"},
    {"LOCKSTEP_PATHS", "user",
     "ways of an all_reduce in shared memory by size, as `lockstep bench --tune` prints them"},
    {"LOCKSTEP_TRACE_DIR", "user, lockstep run",
     "folder in which each rank writes what all did last when its group fails, for this user alone (default: "
     "none)"},
    {"LOCKSTEP_DATA", "user", "folder with data sets, for example $LOCKSTEP_DATA/mnist"},
    {"LOCKSTEP_DISABLE", "user",
     "kernel features to do without, for tests: pidfd,seals,children,peer_memory,memfd"},
    {"LOCKSTEP_FAIL_POINT", "user",
     "where to fail on purpose, for tests: NAME@RANK[+SKIP]=kill|stop|exit|throw"},
    {"LOCKSTEP_PYTHON", "user", "Python with torch, for the project's own tests; programs do not look at it"},
    {"HOROVOD_FUSION_THRESHOLD", "user",
     "operations by name: bytes that are reduced together (default 134217728); 0: each tensor alone"},
    {"HOROVOD_CYCLE_TIME", "user", "operations by name: milliseconds for which new names gather (default 1)"},
    {"HOROVOD_CACHE_CAPACITY", "user",
     "operations by name: names that ranks announce by one bit from the second time on (default 1024)"},
    {"HOROVOD_STALL_CHECK_TIME_SECONDS", "user",
     "operations by name: seconds after which a warning names what misses which ranks (default 60)"},
    {"HOROVOD_STALL_CHECK_DISABLE", "user", "operations by name: 1: no such warnings"},
    {"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "user",
     "operations by name: seconds after which that is a Timeout on every rank (default 0: never)"},
    {"HOROVOD_TIMELINE", "user",
     "operations by name: file for a trace of Chrome, by rank 0; DYNAMIC: none until start_timeline()"},
    {"HOROVOD_TIMELINE_MARK_CYCLES", "user", "operations by name: 1: the trace shows cycles"},
    {"PATH", "system", "where lockstep run looks for the program"},
    {"TERM", "system", "kind of terminal; nothing is redrawn on a dumb one"},
    {"XDG_RUNTIME_DIR", "system",
     "where ranks that were not started by `lockstep run` meet (/tmp where it cannot be used)"},
    {"TORCHELASTIC_RUN_ID", "torchrun", "name of the job"},
    {"TORCHELASTIC_RESTART_COUNT", "torchrun, lockstep run", "how often the job was started anew"},
    {"TORCHELASTIC_USE_AGENT_STORE", "torchrun",
     "True: torchrun itself holds MASTER_PORT; Lockstep uses the next one"},
    {"TORCHELASTIC_ERROR_FILE", "torchrun", "in a folder of this start of the job, which tells jobs apart"},
    {"SLURM_STEP_ID", "Slurm", "set inside an srun step"},
    {"SLURM_JOB_ID", "Slurm", "name of the job, with the step's"},
    {"SLURM_RESTART_COUNT", "Slurm", "how often the job was requeued"},
    {"SLURM_CLUSTER_NAME", "Slurm", "name of the cluster that has given the job its name"},
    {"SLURM_SRUN_COMM_HOST", "Slurm", "address of the srun that started the step; tells jobs apart"},
    {"SLURM_SRUN_COMM_PORT", "Slurm", "its port"},
    {"SLURM_PROCID", "Slurm", "rank"},
    {"SLURM_STEP_NUM_TASKS", "Slurm", "world size: tasks of the step"},
    {"SLURM_NTASKS", "Slurm", "world size where the step's is not set; tasks of the allocation in its shell"},
    {"SLURM_TASK_PID", "Slurm", "process of the task"},
    {"SLURM_LOCALID", "Slurm", "local rank"},
    {"SLURM_NODEID", "Slurm", "number of this machine in the step, from 0"},
    {"SLURM_STEP_TASKS_PER_NODE", "Slurm", "local world sizes, such as 2(x3)"},
    {"OMPI_COMM_WORLD_RANK", "Open MPI", "rank"},
    {"OMPI_COMM_WORLD_SIZE", "Open MPI", "world size"},
    {"OMPI_COMM_WORLD_LOCAL_RANK", "Open MPI", "local rank"},
    {"OMPI_COMM_WORLD_LOCAL_SIZE", "Open MPI", "local world size"},
    {"PMIX_NAMESPACE", "Open MPI", "name of the job"},
    {"OMPI_MCA_orte_precondition_transports", "Open MPI", "random number of the job; tells jobs apart"},
    {"PMIX_SERVER_URI2", "Open MPI", "address of the launcher's process on this machine; tells jobs apart"},
    {"PMI_RANK", "MPICH", "rank"},
    {"PMI_SIZE", "MPICH", "world size"},
    {"MPI_LOCALRANKID", "MPICH", "local rank"},
    {"MPI_LOCALNRANKS", "MPICH", "local world size"},
    {"PMI_FD", "MPICH", "socket of the launcher's process on this machine, which tells jobs apart"},
    {"PMI_ID", "MPICH", "rank under mpiexec -pmi-port, which does not give the world size and is refused"},
    {"HYDI_CONTROL_FD", "MPICH", "set by mpiexec.hydra"},
});

constexpr int MAX_RANKS = 1 << 20;
constexpr int MAX_RESTARTS = 1 << 30;

struct Variables {
  Launcher source;
  std::string_view rank, world_size, local_rank, local_world_size, job_id;
};

int required(std::string_view name, std::string_view because, long minimum, long maximum) {
  const auto value = env_number(name, minimum, maximum);
  if (!value)
    throw InvalidArgument(
        str("environment: ", because, " is set but ", name, " is not; set both or neither"));
  return static_cast<int>(*value);
}

JobEnvironment read_job(const Variables& names) {
  JobEnvironment job;
  job.source = names.source;
  job.rank = required(names.rank, names.world_size, 0, MAX_RANKS - 1);
  job.world_size = required(names.world_size, names.rank, 1, MAX_RANKS);
  if (job.rank >= job.world_size) {
    throw InvalidArgument(str("environment: ", names.rank, "=", job.rank, " must be smaller than ",
                              names.world_size, "=", job.world_size));
  }
  job.local_rank =
      static_cast<int>(env_number(names.local_rank, 0, MAX_RANKS - 1).value_or(JobEnvironment::UNKNOWN));
  job.local_world_size =
      static_cast<int>(env_number(names.local_world_size, 1, MAX_RANKS).value_or(JobEnvironment::UNKNOWN));
  if (job.local_world_size > job.world_size) {
    throw InvalidArgument(str("environment: ", names.local_world_size, "=", job.local_world_size,
                              " must not be larger than ", names.world_size, "=", job.world_size));
  }
  if (job.local_world_size != JobEnvironment::UNKNOWN && job.local_rank >= job.local_world_size) {
    throw InvalidArgument(str("environment: ", names.local_rank, "=", job.local_rank,
                              " must be smaller than ", names.local_world_size, "=", job.local_world_size));
  }
  if (!names.job_id.empty()) job.job_id = env(names.job_id).value_or("");
  return job;
}

// Reads a number from the front of the text; 0 if there is none.
long take_leading_number(std::string_view& text) {
  long value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0) return 0;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

// Slurm writes "2(x3),1": three machines with two tasks, then one with one. Returns the entry of this
// machine.
int slurm_local_size(int world_size) {
  const std::string value = env("SLURM_STEP_TASKS_PER_NODE").value_or("");
  const long node = env_number("SLURM_NODEID", 0, MAX_RANKS).value_or(0);
  std::string_view text = value;
  for (long first = 0; !text.empty();) {
    const long tasks = take_leading_number(text);
    long machines = 1;
    if (text.starts_with("(x")) {
      text.remove_prefix(2);
      machines = take_leading_number(text);
      if (!text.starts_with(')')) break;
      text.remove_prefix(1);
    }
    if (tasks < 1 || machines < 1 || tasks > world_size) break;
    first += machines;
    if (node < first) return static_cast<int>(tasks);
    if (!text.starts_with(',')) break;
    text.remove_prefix(1);
  }
  return JobEnvironment::UNKNOWN;
}

// Set by `lockstep run`, torchrun, or by hand.
JobEnvironment by_rank_and_world_size() {
  const bool ours = env("LOCKSTEP_JOB_ID").has_value();
  const bool torchrun = env("TORCHELASTIC_RUN_ID").has_value();
  const Launcher source = ours ? Launcher::LOCKSTEP_RUN : (torchrun ? Launcher::TORCHRUN : Launcher::BY_HAND);
  JobEnvironment job = read_job({source, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                                 ours ? "LOCKSTEP_JOB_ID" : "TORCHELASTIC_RUN_ID"});
  job.restarts = static_cast<int>(
      env_number(ours ? "LOCKSTEP_RESTART_COUNT" : "TORCHELASTIC_RESTART_COUNT", 0, MAX_RESTARTS)
          .value_or(0));
  if (ours && job.restarts > 0) job.job_id += str("/restart ", job.restarts);
  // torchrun's own name is often just "none": its port tells jobs apart.
  if (torchrun && !ours) {
    job.job_id += str('/', env("MASTER_PORT").value_or("0"), '/', job.restarts);
  } else if (const auto port = env("MASTER_PORT"); port && !ours) {
    job.job_id = "port " + *port;
  }
  return job;
}

// Returns whether this process, and not one of its ancestors, is the task.
bool is_slurm_task() {
  std::error_code ignored;
  const std::string self = std::filesystem::read_symlink("/proc/self", ignored).string();
  return !self.empty() && self == env("SLURM_TASK_PID");
}

// The shell of an allocation may be a step of one task in an allocation of many, so the step's number comes
// first.
JobEnvironment in_slurm_step() {
  const char* const size = env("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  JobEnvironment job =
      read_job({Launcher::SLURM, "SLURM_PROCID", size, "SLURM_LOCALID", size, "SLURM_JOB_ID"});
  job.local_world_size = slurm_local_size(job.world_size);
  job.job_id += "." + *env("SLURM_STEP_ID");
  if (const auto cluster = env("SLURM_CLUSTER_NAME")) job.job_id += "@" + *cluster;
  return job;
}

}  // namespace

std::string_view name_of(Launcher launcher) {
  constexpr std::array<std::string_view, 8> NAMES = {"none",    "lockstep", "torchrun", "env",
                                                     "options", "Slurm",    "Open MPI", "MPICH"};
  return NAMES.at(static_cast<std::size_t>(launcher));
}

std::span<const EnvironmentVariable> environment_table() { return TABLE; }

std::optional<std::string> env(std::string_view name) {
  const bool known =
      std::any_of(TABLE.begin(), TABLE.end(), [&](const auto& row) { return row.name == name; });
  if (!known)
    throw InternalError(str("environment variable ", name, " is not in the table of base/environment.cpp"));
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing of ours sets it
  const char* value = std::getenv(std::string(name).c_str());
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

std::optional<long> env_number(std::string_view name, long minimum, long maximum) {
  const auto text = env(name);
  if (!text) return std::nullopt;
  long value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size() || value < minimum || value > maximum) {
    throw InvalidArgument(str("environment: ", name, "=\"", printable(*text), "\" must be a number from ",
                              minimum, " to ", maximum));
  }
  return value;
}

std::vector<std::string> unknown_lockstep_variables() { return unknown_variables("LOCKSTEP_"); }

std::vector<std::string> unknown_variables(std::string_view prefix) {
  std::vector<std::string> unknown;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string_view name = text.substr(0, text.find('='));
    if (!name.starts_with(prefix)) continue;
    if (std::none_of(TABLE.begin(), TABLE.end(), [&](const auto& row) { return row.name == name; })) {
      unknown.emplace_back(name);
    }
  }
  return unknown;
}

std::vector<std::string> whole_environment() {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) all.emplace_back(*entry);
  return all;
}

JobEnvironment job_environment() {
  if (env("RANK") || env("WORLD_SIZE")) return by_rank_and_world_size();
  const bool is_hydra = env("PMI_RANK") && env("HYDI_CONTROL_FD");
  const bool is_in_step = env("SLURM_STEP_ID") && env("SLURM_PROCID");
  // An mpirun in an allocation starts its own processes with srun. Slurm's variables then describe those
  // processes, not the ranks.
  if (is_in_step && (is_slurm_task() || !(env("OMPI_COMM_WORLD_RANK") || is_hydra))) return in_slurm_step();
  if (env("OMPI_COMM_WORLD_RANK")) {
    JobEnvironment job =
        read_job({Launcher::OPEN_MPI, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                  "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_NAMESPACE"});
    // The name is made of 16 bits; the number is random, and the same on all machines.
    if (const auto number = env("OMPI_MCA_orte_precondition_transports")) job.job_id += "/" + *number;
    return job;
  }
  if (env("PMI_RANK")) {
    return read_job({Launcher::MPICH, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", ""});
  }
  if (env("PMI_ID") && !env("PMI_SIZE")) {
    throw InvalidArgument(
        str("environment: PMI_ID=", printable(*env("PMI_ID")),
            " is set but PMI_SIZE is not: mpiexec -pmi-port does not say how many ranks there "
            "are; start the job without -pmi-port, or set RANK and WORLD_SIZE"));
  }
  return {};
}

}  // namespace lockstep

#include "lockstep/comm/meeting/job_identity.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <vector>

#include "lockstep/base/str.h"
#include "lockstep/os/descendants.h"
#include "lockstep/os/machine.h"
#include "lockstep/os/proc_folder.h"
#include "lockstep/os/process.h"
#include "lockstep/os/process_table.h"
#include "lockstep/os/unix_socket.h"

namespace lockstep {
namespace {

constexpr char SEPARATOR = '\t';  // printable() removes it from every field
constexpr const char* HYDRA_PROXY = "hydra_pmi_proxy";

// The kernel reuses process numbers, but not while the process lives. The start time distinguishes it from
// earlier processes. Containers have equal numbers, so the namespace is part of the name.
std::string name_of_process(pid_t pid) {
  const std::string space = process_namespace();
  const std::uint64_t start = process_stat(pid).start_time;
  return str("process ", pid, start == 0 ? "" : str(" started at tick ", start),
             space.empty() ? "" : " in process namespace " + space);
}

// Finds the hydra_pmi_proxy that started this rank. It is the only process that all ranks of the job on this
// machine have in common. PMI_FD leads to it. A program in between may have closed that descriptor and opened
// another file in its place, so the proxy must be an ancestor.
pid_t hydra_proxy() {
  const std::vector<pid_t> ancestors = ancestor_processes();
  constexpr long MOST_DESCRIPTORS = 1 << 20;
  if (const auto fd = env_number("PMI_FD", 0, MOST_DESCRIPTORS)) {
    const pid_t behind = peer_pid(static_cast<int>(*fd));
    const bool is_above = std::find(ancestors.begin(), ancestors.end(), behind) != ancestors.end();
    if (behind > 0 && (is_above || proc_view() == ProcView::NONE)) return behind;
  }
  const auto named = std::find_if(ancestors.begin(), ancestors.end(),
                                  [](pid_t pid) { return process_name(pid) == HYDRA_PROXY; });
  return named == ancestors.end() ? 0 : *named;
}

JobIdentity of_mpich() {
  JobIdentity identity;
  const pid_t proxy = hydra_proxy();
  if (proxy == 0) return identity;
  identity.launcher = name_of_process(proxy);
  // mpiexec tells all proxies of a job its own address, and the number of the process group that they start.
  const std::vector<std::string> arguments = command_line(proxy);
  const auto value_of = [&](const char* option) {
    const auto found = std::find(arguments.begin(), arguments.end(), option);
    return found == arguments.end() || found + 1 == arguments.end() ? std::string() : *(found + 1);
  };
  if (const std::string mpiexec = value_of("--control-port"); !mpiexec.empty())
    identity.job = str(mpiexec, '/', value_of("--pgid"));
  return identity;
}

// torchrun makes a folder for each start of its workers: .../none_abcd1234/attempt_0/RANK/error.json.
std::string torchrun_folder() {
  std::string path = env("TORCHELASTIC_ERROR_FILE").value_or("");
  for (int level = 0; level < 2; ++level) path.resize(std::min(path.rfind('/'), path.size()));
  return path;
}

bool may_be_same(const std::string& one, const std::string& other) {
  return one.empty() || other.empty() || one == other;
}

}  // namespace

JobIdentity job_identity(const JobEnvironment& place) {
  if (place.source == Launcher::MPICH) return of_mpich();
  JobIdentity identity{.job = place.job_id, .launcher = ""};
  if (place.source == Launcher::TORCHRUN) identity.launcher = torchrun_folder();
  if (place.source == Launcher::OPEN_MPI) identity.launcher = env("PMIX_SERVER_URI2").value_or("");
  if (place.source == Launcher::SLURM) {
    if (const auto port = env("SLURM_SRUN_COMM_PORT"))
      identity.launcher = str("srun at ", env("SLURM_SRUN_COMM_HOST").value_or(""), ':', *port);
  }
  return identity;
}

std::string machine_identity() { return str(boot_id(), '/', process_namespace()); }

std::string user_identity() { return std::to_string(current_user()); }

bool is_same_job(const JobFingerprint& one, const JobFingerprint& other) {
  const bool is_size_same = one.size == 0 || other.size == 0 || one.size == other.size;
  return is_size_same && may_be_same(one.source, other.source) && may_be_same(one.job, other.job) &&
         may_be_same(one.launcher, other.launcher) && may_be_same(one.user, other.user);
}

std::string pack(const JobFingerprint& job) {
  return str(job.size, SEPARATOR, printable(job.source), SEPARATOR, printable(job.job), SEPARATOR,
             printable(job.launcher), SEPARATOR, printable(job.user));
}

JobFingerprint unpack_fingerprint(const std::string& text) {
  std::array<std::string, 5> fields;
  std::size_t at = 0;
  for (std::string& field : fields) {
    const std::size_t end = std::min(text.find(SEPARATOR, at), text.size());
    field = printable(text.substr(at, end - at));
    at = std::min(end + 1, text.size());
  }
  JobFingerprint job{0, fields[1], fields[2], fields[3], fields[4]};
  std::from_chars(fields[0].data(), fields[0].data() + fields[0].size(), job.size);
  return job;
}

std::string describe(const JobFingerprint& job) {
  std::string text = job.size == 0 ? "ranks" : str(job.size, job.size == 1 ? " rank" : " ranks");
  if (!job.source.empty()) text += str(" started ", job.source == "by hand" ? "" : "by ", job.source);
  std::string more;
  const auto add = [&](const char* what, const std::string& value) {
    if (!value.empty()) more += str(more.empty() ? "" : ", ", what, value);
  };
  add("job ", job.job);
  add("", job.launcher);
  add("user ", job.user);
  return more.empty() ? text : str(text, " (", more, ")");
}

}  // namespace lockstep

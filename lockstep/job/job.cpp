#include "lockstep/job/job.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/fail_point.h"
#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/backends/registry.h"
#include "lockstep/os/process.h"
#include "lockstep/store/file_store.h"

namespace lockstep {
namespace {

struct Job {
  std::mutex mutex;
  // guarded by mutex
  std::unique_ptr<ProcessGroup> world;
  std::unique_ptr<Hub> hub;  // inherited sockets serve every later init_process_group() as well
  int local_rank = 0;
  unsigned initialised = 0;  // how often, so that jobs that meet by name never mix two of their worlds
};

Job& job() {
  static Job* const instance = new Job;  // outlives static destructors: leaving happens in an exit handler
  return *instance;
}

void leave_at_exit() {
  const std::lock_guard lock(job().mutex);
  if (job().world) job().world->close();
}

GroupOptions group_options(const InitOptions& options) {
  GroupOptions group;
  constexpr long YEAR = 365L * 24 * 3600;
  if (const auto value = env_number("LOCKSTEP_TIMEOUT", 1, YEAR))
    group.timeout = std::chrono::seconds(*value);
  if (const auto value = env_number("LOCKSTEP_WARN_AFTER", 1, YEAR))
    group.warn_after = std::chrono::seconds(*value);
  if (options.timeout) group.timeout = *options.timeout;
  if (options.warn_after) group.warn_after = *options.warn_after;
  return group;
}

JobEnvironment place_in_job(const InitOptions& options) {
  if (options.rank.has_value() != options.world_size.has_value()) {
    throw InvalidArgument("init_process_group: give both rank and world_size, or neither");
  }
  if (!options.rank) return job_environment();
  JobEnvironment place;
  place.rank = place.local_rank = *options.rank;
  place.world_size = place.local_world_size = *options.world_size;
  if (place.world_size < 1 || place.rank < 0 || place.rank >= place.world_size) {
    throw InvalidArgument(
        str("init_process_group: rank ", place.rank, " does not fit world_size ", place.world_size));
  }
  place.source = "options";
  place.job_id = env("MASTER_PORT").value_or("0");
  return place;
}

// What tells this job from others of the user on this machine, and this world from the job's earlier ones.
std::string meeting_name(const InitOptions& options, const JobEnvironment& place, unsigned world_number) {
  constexpr std::string_view FILE = "file://";
  if (!options.init_method.empty() && options.init_method != "env://" &&
      !options.init_method.starts_with(FILE)) {
    throw InvalidArgument("init_process_group: init_method \"" + printable(options.init_method) +
                          "\" is not supported; use env:// or file:///absolute/path");
  }
  if (!options.init_method.starts_with(FILE)) {
    return str(place.source, '/', place.job_id, '/', place.world_size, '/', world_number);
  }
  if (!options.rank) throw InvalidArgument("init_process_group: file:// needs rank and world_size");
  FileStore store(options.init_method.substr(FILE.size()));
  const std::string key = str("lockstep/world/", world_number);
  if (place.rank == 0)
    store.set(key, str(current_pid(), '-', std::chrono::system_clock::now().time_since_epoch().count()));
  return store.get(key, group_options(options).timeout);
}

std::unique_ptr<Hub> meet(const InitOptions& options, const JobEnvironment& place, unsigned number,
                          Deadline deadline) {
  if (!place.is_single_node()) {
    throw InvalidArgument(str("init_process_group: the job has ", place.world_size, " ranks but only ",
                              place.local_world_size,
                              " on this machine; jobs over several machines are not supported yet"));
  }
  if (const auto fds = env("LOCKSTEP_HUB_FDS"); fds && !options.rank) {
    return std::make_unique<Hub>(Hub::inherited(place.rank, place.world_size, *fds));
  }
  return std::make_unique<Hub>(
      Hub::meet(place.rank, place.world_size, meeting_name(options, place, number), deadline));
}

// Programs started by a launcher show the library's warnings, and lose no line when they are killed.
void adopt_launcher_habits(const JobEnvironment& place) {
  if (place.source == "none") return;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  if (has_log_sink()) return;
  set_log_sink([](LogLevel level, const std::string& line) {
    if (level != LogLevel::INFO) std::fputs(("lockstep: " + line + "\n").c_str(), stderr);
  });
}

}  // namespace

void init_process_group(const std::string& backend, const InitOptions& options) {
  Job& mine = job();
  const std::lock_guard lock(mine.mutex);
  if (mine.world) {
    throw InvalidArgument("init_process_group: already initialised; call destroy_process_group() first");
  }
  const JobEnvironment place = place_in_job(options);
  const std::string wanted = backend == "auto" ? env("LOCKSTEP_BACKEND").value_or("auto") : backend;
  const BackendInfo& row = find_backend(wanted, place.world_size);
  if (!row.needs_hub && place.world_size != 1) {
    throw InvalidArgument(str("init_process_group: backend \"", row.name, "\" serves one rank, the job has ",
                              place.world_size));
  }
  adopt_launcher_habits(place);
  const GroupOptions group = group_options(options);
  const Deadline deadline = Deadline::in(group.timeout);
  fail_point("init.before_meet");
  const bool inherited = env("LOCKSTEP_HUB_FDS").has_value() && !options.rank;
  if (!mine.hub || !inherited || mine.hub->size() != place.world_size) {
    mine.hub = meet(options, place, ++mine.initialised, deadline);
  }
  fail_point("init.after_meet");
  mine.world = std::make_unique<ProcessGroup>(row.make(*mine.hub, "world", group, deadline));
  mine.local_rank = place.local_rank;
  static const int registered = std::atexit(leave_at_exit) + std::at_quick_exit(leave_at_exit);
  (void)registered;
}

void destroy_process_group() {
  Job& mine = job();
  const std::lock_guard lock(mine.mutex);
  if (!mine.world) throw InvalidArgument("destroy_process_group: not initialised");
  fail_point("destroy.begin");
  mine.world->close();
  mine.world.reset();
}

bool is_initialized() {
  const std::lock_guard lock(job().mutex);
  return job().world != nullptr;
}

const ProcessGroup& world() {
  const std::lock_guard lock(job().mutex);
  if (!job().world) {
    throw InvalidArgument(
        "the default process group has not been initialised; call init_process_group() first");
  }
  return *job().world;
}

int get_rank() { return world().rank(); }
int get_world_size() { return world().size(); }
std::string get_backend() { return std::string(world().backend_name()); }

int get_local_rank() {
  world();
  const std::lock_guard lock(job().mutex);
  return job().local_rank;
}

}  // namespace lockstep

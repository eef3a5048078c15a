#include "lockstep/job/job.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>

#include "lockstep/base/deadline.h"
#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/fail_point.h"
#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/base/wait_reminder.h"
#include "lockstep/comm/backends/mpi/backend.h"
#include "lockstep/comm/backends/mpi/meeting.h"
#include "lockstep/comm/backends/registry.h"
#include "lockstep/comm/meeting/missing_rank.h"
#include "lockstep/comm/meeting/same_machine.h"
#include "lockstep/comm/trace/trace_memory.h"
#include "lockstep/job/before_leaving.h"
#include "lockstep/job/group_list.h"
#include "lockstep/job/how_started.h"
#include "lockstep/job/meet_over_store.h"
#include "lockstep/job/mpi.h"
#include "lockstep/job/only_copy.h"
#include "lockstep/job/place_on_node.h"
#include "lockstep/job/rendezvous.h"
#include "lockstep/job/virtual_ranks.h"
#include "lockstep/os/failure_note.h"
#include "lockstep/os/machine.h"

namespace lockstep {
namespace {

struct Job {
  std::mutex mutex;
  // guarded by mutex
  std::unique_ptr<ProcessGroup> world;
  Rendezvous rendezvous;
  PlaceOnNode place;
};

Job& job() {
  // Outlives static destructors, because an exit handler leaves the job.
  static Job* const instance = new Job;
  return *instance;
}

void leave_at_exit() {
  const std::lock_guard lock(job().mutex);
  close_listed_groups();
  if (job().world) job().world->close();
}

GroupOptions group_options(const InitOptions& options) {
  GroupOptions group;
  constexpr long YEAR = 365L * 24 * 3600;
  if (const auto value = env_number("LOCKSTEP_TIMEOUT", 1, YEAR))
    group.timeout = std::chrono::seconds(*value);
  if (const auto value = env_number("LOCKSTEP_WARN_AFTER", 1, YEAR))
    group.warn_after = std::chrono::seconds(*value);
  if (options.timeout) group.timeout = bounded_timeout(*options.timeout);
  if (options.warn_after) group.warn_after = bounded_timeout(*options.warn_after);
  return group;
}

void leave() {
  Job& mine = job();
  const std::lock_guard lock(mine.mutex);
  fail_point("destroy.begin");
  close_listed_groups();
  if (mine.world) mine.world->close();
  mine.world.reset();
  detail::set_virtual_ranks(0, 1);
}

// If a launcher started this process, its log sink prints warnings, and standard output is flushed by line,
// so that a killed process loses no line.
void adopt_launcher_habits(const JobEnvironment& place) {
  if (place.source == Launcher::NONE) return;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  if (has_log_sink()) return;
  set_log_sink([](LogLevel level, const std::string& line) {
    if (level != LogLevel::INFO) std::fputs(("lockstep: " + line + "\n").c_str(), stderr);
  });
}

void refuse_second(const Job& job) {
  if (job.world)
    throw InvalidArgument("init_process_group: already initialised; call destroy_process_group() first");
}

// Reports a failure in init_process_group() to the launcher, because no group exists yet to do so.
void tell_launcher_of(const Error& error) noexcept {
  if (const auto* lost = dynamic_cast<const PeerLost*>(&error))
    return note_failure(lost->code(), lost->peer());
  if (const auto* late = dynamic_cast<const MissingRank*>(&error))
    return note_failure(late->code(), late->rank());
  if (error.code() == ErrorCode::TIMEOUT || error.code() == ErrorCode::ABORTED)
    note_failure(error.code(), FailureNote::SOMEBODY);
}

// Notes name ranks of the launcher's job, so they are only sent if this job's ranks are the same.
void begin_notes(const JobEnvironment& place) {
  if (env_number("RANK", 0, MOST_RANKS) == place.rank &&
      env_number("WORLD_SIZE", 1, MOST_RANKS) == place.world_size)
    begin_failure_notes(place.rank);
}

void begin(Job& job, ProcessGroup world, const GroupOptions& group, const PlaceOnNode& place,
           int virtual_ranks) {
  detail::set_virtual_ranks(virtual_ranks, world.size());
  job.world = std::make_unique<ProcessGroup>(std::move(world));
  begin_group_list(group);
  job.place = place;
  clear_failure();
  static const int registered = std::atexit(leave_at_exit) + std::at_quick_exit(leave_at_exit);
  (void)registered;
}

void meet_and_begin(Job& job, const InitOptions& options, const RendezvousFacts& facts,
                    const BackendChoice& wanted, const GroupOptions& group) {
  const Deadline deadline = Deadline::in(group.timeout);
  const auto announced = TraceMemory::announce(facts.place.rank, facts.place.world_size);
  fail_point("init.before_meet");
  const Met met = job.rendezvous.meet(options, facts, wanted, deadline);
  fail_point("init.after_meet");
  begin(job, make_group(*met.meeting, met.backend, wanted, met.place.local_rank, "world", group, deadline),
        group, met.place, facts.virtual_ranks);
}

std::vector<RankOnMachine> ranks_on_machines(Meeting& meeting, Deadline deadline) {
  std::vector<RankOnMachine> all;
  for (const Message& message : meeting.exchange(boot_id(), {}, deadline))
    all.push_back({.machine = message.text, .local_rank = -1});
  return all;
}

void init_from_mpi(const MpiHandle& handle, const InitOptions& options) {
  Job& mine = job();
  const std::lock_guard lock(mine.mutex);
  refuse_second(mine);
  if (!options.init_method.empty() || options.rank || options.world_size || options.store)
    throw InvalidArgument(
        "init_process_group_from_mpi: rank, world_size, init_method and store come from the "
        "communicator; do not set them");
  const GroupOptions group = group_options(options);
  refuse_second_copy("init_process_group_from_mpi");
  const Deadline deadline = Deadline::in(group.timeout);
  const WaitReminder reminder(group.warn_after, "init_process_group_from_mpi", "");
  const auto communicator = mpi_duplicate(handle, deadline);
  MpiMeeting& meeting = MpiMeeting::of(communicator);
  meeting.set_caller("init_process_group_from_mpi");
  meeting.begin();
  const PlaceOnNode place = place_on_node(ranks_on_machines(meeting, deadline), communicator->rank());
  begin(mine,
        messages::make_group(MPI_CARRIER, connect_mpi(meeting, communicator, deadline), meeting, "world",
                             group, deadline),
        group, place, wanted_virtual_ranks(options.virtual_ranks, communicator->size()));
}

}  // namespace

void init_process_group(const std::string& backend, const InitOptions& options) {
  Job& mine = job();
  const std::lock_guard lock(mine.mutex);
  refuse_second(mine);
  refuse_second_copy("init_process_group");
  const RendezvousFacts facts = rendezvous_facts(options);
  const int size = facts.place.world_size;
  const BackendChoice wanted =
      choose_backends(backend == "auto" ? env("LOCKSTEP_BACKEND").value_or("auto") : backend);
  if (const BackendInfo& row = find_backend(wanted.cpu, size); !row.serves_many && size != 1) {
    throw InvalidArgument(
        str("init_process_group: backend \"", row.name, "\" serves one rank, the job has ", size));
  }
  adopt_launcher_habits(facts.place);
  const GroupOptions group = group_options(options);
  const std::string how = how_started(facts);
  const WaitReminder reminder(
      group.warn_after, str("init_process_group, rank ", facts.place.rank, " of ", facts.place.world_size),
      how);
  begin_notes(facts.place);
  try {
    meet_and_begin(mine, options, facts, wanted, group);
  } catch (const MissingRank& error) {
    const MissingRank said(str(error.what(), "; ", how), error.rank());
    tell_launcher_of(said);
    throw MissingRank(said);
  } catch (const Timeout& error) {
    const Timeout said(str(error.what(), "; ", how));
    tell_launcher_of(said);
    throw Timeout(said);
  } catch (const Error& error) {
    tell_launcher_of(error);
    throw;
  }
}

void detail::init_from_mpi_handle(const void* handle, std::size_t size, const InitOptions& options) {
  init_from_mpi({.handle = handle, .size = size}, options);
}

void init_process_group_from_mpi_fortran(int communicator, const InitOptions& options) {
  init_from_mpi({.fortran = communicator}, options);
}

void destroy_process_group() {
  if (!is_initialized()) throw InvalidArgument("destroy_process_group: not initialised");
  std::exception_ptr failure;
  try {
    do_before_leaving();
  } catch (...) {
    failure = std::current_exception();
  }
  leave();
  if (failure) std::rethrow_exception(failure);
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

int restart_count() {
  constexpr long MOST = 1L << 30;
  const long requeues = env_number("SLURM_RESTART_COUNT", 0, MOST).value_or(0);
  const auto ours = env_number("LOCKSTEP_RESTART_COUNT", 0, MOST);
  return static_cast<int>(ours.value_or(env_number("TORCHELASTIC_RESTART_COUNT", 0, MOST).value_or(0)) +
                          requeues);
}

namespace {

PlaceOnNode place_here() {
  world();
  const std::lock_guard lock(job().mutex);
  return job().place;
}

}  // namespace

int get_local_rank() { return place_here().local_rank; }
int get_local_world_size() { return place_here().local_size; }
int get_node_rank() { return place_here().node_rank; }
int get_node_count() { return place_here().node_count; }

}  // namespace lockstep

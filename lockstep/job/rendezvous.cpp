#include "lockstep/job/rendezvous.h"

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/wait_reminder.h"
#include "lockstep/comm/backends/mpi/backend.h"
#include "lockstep/comm/backends/mpi/meeting.h"
#include "lockstep/comm/meeting/missing_rank.h"
#include "lockstep/job/introduction.h"
#include "lockstep/job/meet_over_store.h"
#include "lockstep/job/virtual_ranks.h"
#include "lockstep/os/kernel_features.h"
#include "lockstep/os/machine.h"
#include "lockstep/os/process.h"
#include "lockstep/os/tcp_socket.h"
#include "lockstep/store/file_store.h"

namespace lockstep {
namespace {

constexpr int MOST_DESCRIPTORS = 1 << 20;
constexpr int MOST_RESTARTS = 1 << 30;

std::string who(const JobEnvironment& place) {
  return str("init_process_group, rank ", place.rank, " of ", place.world_size, ": ");
}

JobEnvironment given_place(int rank, int world_size) {
  if (world_size < 1 || rank < 0 || rank >= world_size) {
    throw InvalidArgument(str("init_process_group: rank ", rank, " does not fit world_size ", world_size));
  }
  JobEnvironment place;
  place.rank = rank;
  place.world_size = world_size;
  place.local_rank = place.local_world_size = JobEnvironment::UNKNOWN;
  // If the caller repeats the environment's numbers, the environment's place on this machine is valid too.
  if (env("RANK").value_or(std::to_string(rank)) == std::to_string(rank) &&
      env("WORLD_SIZE").value_or(std::to_string(world_size)) == std::to_string(world_size)) {
    const auto local = [](const char* name) {
      return static_cast<int>(env_number(name, 0, MOST_RANKS).value_or(JobEnvironment::UNKNOWN));
    };
    place.local_rank = local("LOCAL_RANK");
    place.local_world_size = local("LOCAL_WORLD_SIZE");
  }
  place.restarts = static_cast<int>(env_number("LOCKSTEP_RESTART_COUNT", 0, MOST_RESTARTS).value_or(0));
  place.source = Launcher::OPTIONS;
  return place;
}

// Returns the launcher's place for this process; nullopt if no launcher started it, or if the environment
// contradicts itself.
std::optional<JobEnvironment> launched_place() {
  try {
    JobEnvironment place = job_environment();
    if (place.source != Launcher::NONE && place.source != Launcher::BY_HAND) return place;
    // The caller gives rank and world size, so the environment need not be valid.
  } catch (const InvalidArgument&) {
  }
  return std::nullopt;
}

// A caller that gives the launcher's world size means the launcher's job, even if it numbers the ranks in
// another order. Another world size is a job by hand, perhaps across several launchers.
void identify(RendezvousFacts& facts) {
  facts.machine = machine_identity();
  facts.user = user_identity();
  if (!facts.is_place_given) {
    if (facts.place.source != Launcher::BY_HAND) facts.identity = job_identity(facts.place);
    return;
  }
  const auto launched = launched_place();
  if (!launched || launched->world_size != facts.place.world_size) return;
  facts.place.source = launched->source;
  facts.place.job_id = launched->job_id;
  facts.identity = job_identity(*launched);
}

// 0 is not a port, although a server may request it to get a free one.
std::optional<int> master_port(const JobEnvironment& place) {
  try {
    const auto port = env_number("MASTER_PORT", 1, LARGEST_PORT);
    return port ? std::optional(static_cast<int>(*port)) : std::nullopt;
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(
        str(who(place), error.what(),
            "; set it to the same number for all ranks of the job, a port that is free on rank 0's machine"));
  }
}

// The place from the options or the URL; nullopt if neither has one.
std::optional<JobEnvironment> place_by_caller(const InitOptions& options) {
  std::optional<int> rank = options.rank;
  std::optional<int> world_size = options.world_size;
  if (options.init_method.starts_with("tcp://")) {
    const TcpUrl url = parse_tcp_url(options.init_method);
    const bool differs = (rank && url.rank && rank != url.rank) ||
                         (world_size && url.world_size && world_size != url.world_size);
    if (differs)
      throw InvalidArgument(
          "init_process_group: the options and init_method name different ranks or world sizes");
    if (!rank) rank = url.rank;
    if (!world_size) world_size = url.world_size;
  }
  if (rank.has_value() != world_size.has_value()) {
    throw InvalidArgument("init_process_group: give both rank and world_size, or neither");
  }
  if (!rank) return std::nullopt;
  return given_place(*rank, *world_size);
}

Secret job_secret(const RendezvousFacts& facts) {
  return facts.secret_fd ? Secret::from_descriptor(*facts.secret_fd) : Secret::from_file(facts.secret_file);
}

std::unique_ptr<TcpStoreServer> serve(const Secret& secret, const RendezvousFacts& facts,
                                      const RendezvousPlan& plan) {
  try {
    return std::make_unique<TcpStoreServer>(TcpStoreServerOptions{
        .secret = secret, .address = address_to_listen_at(plan.host), .port = plan.port});
  } catch (const SystemError& error) {
    throw SystemError(
        str(who(facts.place), "cannot serve the store at ", text({plan.host, plan.port}), " (", plan.why,
            error.error_number() == EADDRINUSE
                ? "); another program has this port, choose another MASTER_PORT"
                : "); MASTER_ADDR must be an address of rank 0's machine"),
        error.error_number());
  }
}

const char* name_of_address(const RendezvousFacts& facts) {
  return facts.init_method.starts_with("tcp://") ? "init_method" : "MASTER_ADDR";
}

// MPI connects its ranks itself. On one machine ranks meet as with other backends, because sockets can pass
// descriptors.
bool meets_over_mpi(const RendezvousFacts& facts) {
  return !facts.has_store && (facts.init_method.empty() || facts.init_method == "env://") &&
         !facts.is_place_given && !facts.place.is_single_node() && facts.place.world_size > 1;
}

// The name that distinguishes this world from the user's other jobs on this machine. Rank 0 writes it to a
// file that all ranks see.
std::string name_in_file(const RendezvousFacts& facts, const RendezvousPlan& plan, unsigned world,
                         Deadline deadline) {
  FileStore store(plan.name);
  const std::string key = str("lockstep/world/", world);
  if (facts.place.rank == 0) {
    store.set(key, str(current_pid(), '-', std::chrono::system_clock::now().time_since_epoch().count()));
  }
  const Awaited awaited([&] { return str("rank 0 to write into ", printable(plan.name)); });
  auto entry = store.first_of({key}, deadline);
  if (!entry) {
    throw MissingRank(
        str(who(facts.place), "rank 0 did not write into ", printable(plan.name), " before the timeout"), 0);
  }
  return std::move(entry->value);
}

}  // namespace

RendezvousFacts rendezvous_facts(const InitOptions& options) {
  RendezvousFacts facts;
  const auto given = place_by_caller(options);
  facts.is_place_given = given.has_value();
  facts.place = given ? *given : job_environment();
  identify(facts);
  facts.virtual_ranks = wanted_virtual_ranks(options.virtual_ranks, facts.place.world_size);
  facts.has_store = options.store != nullptr;
  facts.init_method = options.init_method;
  facts.has_hub = env("LOCKSTEP_HUB_FDS").has_value();
  facts.master_addr = without_brackets(env("MASTER_ADDR").value_or(""));
  facts.master_port = master_port(facts.place);
  facts.has_agent_store = env("TORCHELASTIC_USE_AGENT_STORE") == "True";
  facts.does_launcher_serve = env("LOCKSTEP_STORE") == "launcher";
  if (const auto fd = env_number("LOCKSTEP_SECRET_FD", 0, MOST_DESCRIPTORS))
    facts.secret_fd = static_cast<int>(*fd);
  facts.secret_file = env("LOCKSTEP_SECRET_FILE").value_or("");
  return facts;
}

// Inherited sockets serve every world of the process. Every other way needs a new name for each world, so the
// world's number is part of it.
Met Rendezvous::meet(const InitOptions& options, const RendezvousFacts& facts, const BackendChoice& wanted,
                     Deadline deadline) {
  const JobEnvironment& place = facts.place;
  const std::string& backend = wanted.cpu;
  if (MPI_CARRIER.carries(backend) && meets_over_mpi(facts)) return meet_over_mpi(facts, wanted, deadline);
  const RendezvousPlan plan = plan_rendezvous(facts);
  if (!is_inherited_) ++worlds_;
  if (place.world_size > 1 && plan.way == RendezvousWay::TCP_STORE) {
    join_store(facts, plan, deadline);
    return meet_over_store(tcp_store_, facts, plan, wanted, deadline);
  }
  if (place.world_size > 1 && plan.way == RendezvousWay::GIVEN_STORE) {
    return meet_over_store(options.store, facts, plan, wanted, deadline);
  }
  meet_here(facts, plan, deadline);
  const std::vector<Introduction> all = introduce(*hub_,
                                                  {.backend = text_of(wanted),
                                                   .virtual_ranks = facts.virtual_ranks,
                                                   .local_rank = place.local_rank,
                                                   .job = pack(fingerprint(facts, plan))},
                                                  deadline);
  return {hub_.get(),
          backend != "auto"                  ? backend
          : place.world_size == 1            ? "self"
          : kernel_has(KernelFeature::MEMFD) ? "shm"
                                             : "tcp",
          place_on_node(on_machines(all), place.rank)};
}

void Rendezvous::meet_here(const RendezvousFacts& facts, const RendezvousPlan& plan, Deadline deadline) {
  const int rank = facts.place.rank;
  const int size = facts.place.world_size;
  if (plan.way == RendezvousWay::INHERITED_SOCKETS) {
    if (!is_inherited_) hub_ = std::make_unique<Hub>(Hub::inherited(rank, size, *env("LOCKSTEP_HUB_FDS")));
    is_inherited_ = true;
    return;
  }
  is_inherited_ = false;
  const std::string name = plan.way == RendezvousWay::FILE ? name_in_file(facts, plan, worlds_, deadline)
                                                           : str(plan.name, '/', worlds_);
  hub_ = std::make_unique<Hub>(Hub::meet(rank, size, name, deadline, fingerprint(facts, plan)));
}

void Rendezvous::join_store(const RendezvousFacts& facts, const RendezvousPlan& plan, Deadline deadline) {
  const std::string at = text({plan.host, plan.port});
  if (tcp_store_ && store_place_ == at) return;
  tcp_store_.reset();
  server_.reset();
  secret_ = job_secret(facts);
  store_job_ = fingerprint(facts, plan);
  const std::string farewell = meeting_farewell(facts.place.rank, store_job_);
  const Awaited awaited([&] {
    return str("the store at ", at, ", which ",
               facts.does_launcher_serve ? "the launcher of node 0" : "rank 0", " serves, to answer");
  });
  try {
    if (plan.serves) {
      // This rank does not connect to the host, but the other ranks must, so a bad name is reported here too.
      tcp_check_host(plan.host, deadline);
      const std::string here = address_towards(plan.host, deadline);
      if (here.empty())
        throw SystemError(str(who(facts.place), "this machine has no route to ", printable(plan.host), " (",
                              plan.why, "); MASTER_ADDR must be an address of rank 0's machine"),
                          EHOSTUNREACH);
      server_ = serve(*secret_, facts, plan);
      tcp_store_ = server_->open({.here = here, .farewell = farewell});
    } else {
      tcp_store_ = std::make_shared<TcpStore>(TcpStoreOptions{.host = plan.host,
                                                              .port = plan.port,
                                                              .secret = *secret_,
                                                              .deadline = deadline,
                                                              .farewell = farewell});
    }
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(str(who(facts.place), error.what(), "; set ", name_of_address(facts),
                              " to the address of rank 0's machine as this machine knows it"));
  } catch (const Timeout& error) {
    throw Timeout(str(who(facts.place), error.what(), "; the store is served ",
                      facts.does_launcher_serve ? "by the launcher of node 0" : "by rank 0",
                      ": was it started?"));
  }
  store_place_ = at;
}

Met Rendezvous::meet_over_mpi(const RendezvousFacts& facts, const BackendChoice& wanted, Deadline deadline) {
  const JobEnvironment& place = facts.place;
  const auto world = mpi_world(deadline);
  if (world->rank() != place.rank || world->size() != place.world_size)
    throw InvalidArgument(
        str(who(place), "for MPI this is rank ", world->rank(), " of ", world->size(),
            "; start the job with the mpirun of this MPI or with srun --mpi=..., and unset RANK and "
            "WORLD_SIZE"));
  MpiMeeting& meeting = MpiMeeting::of(world);
  meeting.begin();
  const std::vector<Introduction> all = introduce(meeting,
                                                  {.backend = text_of(wanted),
                                                   .virtual_ranks = facts.virtual_ranks,
                                                   .local_rank = place.local_rank,
                                                   .boot_id = boot_id()},
                                                  deadline);
  return {&meeting, wanted.cpu, place_on_node(on_machines(all), place.rank)};
}

Met Rendezvous::meet_over_store(std::shared_ptr<Store> store, const RendezvousFacts& facts,
                                const RendezvousPlan& plan, const BackendChoice& wanted, Deadline deadline) {
  const JobEnvironment& place = facts.place;
  const bool is_ours = plan.way == RendezvousWay::TCP_STORE;
  MeetOverStoreOptions options = {.meeting = {.store = std::move(store),
                                              .rank = place.rank,
                                              .size = place.world_size,
                                              .name = str(plan.name, '/', worlds_),
                                              .local_address = {},
                                              .job = fingerprint(facts, plan),
                                              .gone_as = store_job_,
                                              .is_of_one_job = is_ours},
                                  .local_rank = place.local_rank,
                                  .virtual_ranks = facts.virtual_ranks};
  if (is_ours) options.meeting.secret = secret_->raw();
  try {
    over_store_ = lockstep::meet_over_store(std::move(options), wanted, deadline);
  } catch (const StoreError&) {
    tcp_store_.reset();  // the next attempt connects again
    throw;
  }
  return {&over_store_.meeting(), over_store_.backend, over_store_.place};
}

}  // namespace lockstep

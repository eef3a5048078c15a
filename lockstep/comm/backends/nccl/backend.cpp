#include "lockstep/comm/backends/nccl/backend.h"

#include <algorithm>
#include <numeric>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/backends/messages/hierarchical_backend.h"
#include "lockstep/comm/backends/modules/library_agreement.h"
#include "lockstep/comm/backends/nccl/core.h"
#include "lockstep/comm/backends/self/self_backend.h"
#include "lockstep/comm/backends/shared/shm_backend.h"
#include "lockstep/comm/backends/tcp/backend.h"
#include "lockstep/comm/collectives/all_gather.h"
#include "lockstep/comm/collectives/barrier.h"
#include "lockstep/comm/group/split_agreement.h"
#include "lockstep/comm/meeting/group_meeting.h"
#include "lockstep/comm/meeting/same_machine.h"

namespace lockstep {
namespace {

using nccl::Channel;
using nccl::Communicator;
using nccl::Core;
using nccl::Level;
using nccl::UniqueId;

class NcclBackend final : public Backend {
 public:
  explicit NcclBackend(std::shared_ptr<Core> core) : cpu_(core->membership().cpu), core_(std::move(core)) {
    core_->begin();
  }
  ~NcclBackend() override {
    if (core_->forked())
      core_->stay();
    else
      core_->end();
  }
  NcclBackend(const NcclBackend&) = delete;
  NcclBackend& operator=(const NcclBackend&) = delete;

  std::string_view name() const override { return core_->membership().backend; }
  int rank() const override { return cpu_->rank(); }
  int size() const override { return cpu_->size(); }
  const std::string& group_name() const override { return core_->membership().name; }
  bool serves(DeviceType device) const override { return device == device_type() || cpu_->serves(device); }
  int device_index() const override { return core_->membership().device; }

  std::shared_ptr<WorkState> start(Request request) override {
    core_->refuse_fork(std::string(name_of(request.verb)));
    if (request.device != device_type() || request.verb == Verb::BARRIER)
      return start_on_cpu(std::move(request));
    if (const std::string why = nccl::lacks(request); !why.empty())
      throw InvalidArgument(str(name_of(request.verb), " on group \"", group_name(), "\", rank ", rank(),
                                " of ", size(), ": ", why));
    return core_->start(std::move(request));
  }
  std::shared_ptr<void> allocate_shared(std::size_t bytes) override { return cpu_->allocate_shared(bytes); }
  std::shared_ptr<void> make_common(std::size_t bytes, int holders) override {
    return cpu_->make_common(bytes, holders);
  }
  std::shared_ptr<void> hold_common(int maker, std::uint64_t place, std::size_t bytes) override {
    return cpu_->hold_common(maker, place, bytes);
  }
  std::optional<std::uint64_t> place_of(const void* memory) override { return cpu_->place_of(memory); }
  std::shared_ptr<std::byte> memory_of(int rank, std::uint64_t place, std::size_t bytes) override {
    return cpu_->memory_of(rank, place, bytes);
  }
  std::shared_ptr<Backend> make_groups(const SplitRequest& split) override;
  void help() override { cpu_->help(); }
  void check_peers() override {
    core_->refuse_fork(A_WAIT_OUTSIDE);
    core_->check_peers();
  }
  std::shared_ptr<TraceMemory> trace() const override { return cpu_->trace(); }
  void abort(const std::string& reason, ErrorCode code, int peer) override {
    if (core_->forked()) return;
    cpu_->abort(reason, code, peer);
    core_->fail(code, aborted(rank(), reason, code, peer).text, peer);
  }
  void close() override {
    if (core_->forked()) return;
    core_->end();
    cpu_->close();
  }

 private:
  // A call in CPU memory. Its wait launches queued messages, because the receiver of such a message may be
  // the rank that it waits for.
  class OnCpu : public WorkState {
   public:
    OnCpu(std::shared_ptr<Core> core, std::shared_ptr<WorkState> work, Verb verb)
        : core_(std::move(core)), work_(std::move(work)), verb_(verb) {}
    void wait(std::optional<std::chrono::nanoseconds> timeout) override {
      core_->refuse_fork("a wait");
      core_->launch_messages();
      try {
        work_->wait(timeout);
      } catch (const Error&) {
        core_->rethrow_of_cpu(std::string(name_of(verb_)));
      }
    }
    bool poll() override {
      core_->refuse_fork("a test for completion");
      core_->launch_messages();
      return work_->poll();
    }
    std::exception_ptr exception() const override { return work_->exception(); }
    int source_rank() const override { return work_->source_rank(); }

   private:
    const std::shared_ptr<Core> core_;
    const std::shared_ptr<WorkState> work_;
    const Verb verb_;
  };

  std::shared_ptr<WorkState> start_on_cpu(Request request) {
    const Verb verb = request.verb;
    core_->require_usable(std::string(name_of(verb)));
    if (!request.async_op) core_->launch_messages();
    try {
      auto work = cpu_->start(std::move(request));
      return work ? std::make_shared<OnCpu>(core_, std::move(work), verb) : nullptr;
    } catch (const Error&) {
      core_->rethrow_of_cpu(std::string(name_of(verb)));
    }
  }

  DeviceType device_type() const { return core_->membership().library->streams->device_type(); }

  const std::shared_ptr<Backend> cpu_;
  const std::shared_ptr<Core> core_;
};

const nccl::Library& open_on_all(const ProcessGroup& hosts, Deadline deadline) {
  const nccl::Library* library = nullptr;
  std::string version;
  std::string failure;
  try {
    library = &nccl::open_library();
    version = str("NCCL ", nccl::version_text(library->version));
  } catch (const Error& error) {
    failure = error.what();
  }
  GroupMeeting meeting(hosts);
  agree_on_library(meeting, "nccl", version, failure, deadline);
  return *library;
}

// Makes a communicator of `ranks`, which are ranks of the hosts' group and include this one. All other ranks
// make communicators of theirs at the same time. If one rank's communicator fails, that rank ends the hosts'
// group, which ends the waits of the other ranks.
std::unique_ptr<Communicator> make_communicator(const nccl::Library& library, const ProcessGroup& hosts,
                                                const std::vector<int>& ranks, Deadline deadline) {
  UniqueId id = {};
  const int place = static_cast<int>(std::find(ranks.begin(), ranks.end(), hosts.rank()) - ranks.begin());
  if (place == 0) {
    if (const nccl::Result result = library.api.get_unique_id(&id); result != nccl::SUCCESS)
      throw DistBackendError(library.describe("ncclGetUniqueId", result, nullptr));
  }
  std::vector<UniqueId> ids(static_cast<std::size_t>(hosts.size()));
  comm::all_gather(hosts, &id, sizeof(id), DType::UINT8, {std::as_writable_bytes(std::span(ids))});
  return Communicator::make(library, ids[static_cast<std::size_t>(ranks.front())], place,
                            static_cast<int>(ranks.size()),
                            {deadline, [&] { hosts.backend().check_peers(); }});
}

struct Making {
  std::string name;
  std::string_view backend;
  std::vector<int> world_ranks;
  GroupOptions options;
  int local_rank = 0;
};

// Finds the ranks of each machine, if the backend needs them. Two levels make sense only if some ranks share
// a machine, but not all of them.
void find_neighbours(Core::Membership& membership, const ProcessGroup& hosts, std::string_view wanted,
                     Deadline deadline) {
  membership.backend = NCCL;
  if (wanted != HIERARCHICAL_NCCL) return;
  GroupMeeting meeting(hosts);
  const algorithms::Nodes nodes = ranks_by_machine(meeting, deadline);
  if (nodes.size() > 1 && nodes.size() < static_cast<std::size_t>(hosts.size()))
    membership.backend = HIERARCHICAL_NCCL;
  membership.grid = nccl::grid_of(nodes, hosts.rank());
}

Core::Channels make_channels(const Core::Membership& membership, const ProcessGroup& hosts) {
  std::vector<int> everybody(static_cast<std::size_t>(hosts.size()));
  std::iota(everybody.begin(), everybody.end(), 0);
  const auto make = [&](const std::vector<int>& ranks) {
    return make_communicator(*membership.library, hosts, ranks, Deadline::in(membership.options.timeout));
  };
  Core::Channels channels;
  for (Channel& channel : channels) {
    nccl::Lanes::Communicators communicators;
    communicators[static_cast<std::size_t>(Level::ALL)] = make(everybody);
    if (membership.grid && &channel == &channels[Core::COLLECTIVES]) {
      communicators[static_cast<std::size_t>(Level::NODE)] = make(membership.grid->node);
      communicators[static_cast<std::size_t>(Level::ACROSS)] = make(membership.grid->across);
    }
    channel.lanes = std::make_unique<nccl::Lanes>(*membership.library->streams, membership.device,
                                                  std::move(communicators));
  }
  return channels;
}

std::shared_ptr<Core> make_core(const std::shared_ptr<Backend>& cpu, const Making& making) {
  std::vector<int> everybody(static_cast<std::size_t>(cpu->size()));
  std::iota(everybody.begin(), everybody.end(), 0);
  Core::Membership membership;
  membership.name = making.name;
  membership.world_ranks = making.world_ranks;
  membership.options = making.options;
  membership.cpu = cpu;
  membership.hosts = cpu->split({everybody}, making.name + "/hosts", making.options);
  const ProcessGroup hosts(membership.hosts);
  const Deadline deadline = Deadline::in(making.options.timeout);
  membership.library = &open_on_all(hosts, deadline);  // on failure, all ranks throw
  try {
    DeviceStreams& streams = *membership.library->streams;
    membership.device = making.local_rank % streams.device_count();
    streams.set_device(membership.device);
    find_neighbours(membership, hosts, making.backend, deadline);
    Core::Channels channels = make_channels(membership, hosts);
    comm::barrier(hosts);  // all ranks have their communicators
    return std::make_shared<Core>(std::move(membership), std::move(channels));
  } catch (const Error& error) {
    hosts.abort(error.what());
    hosts.close();
    throw;
  }
}

ProcessGroup make_cpu_group(std::string_view backend, Meeting& meeting, const std::string& name,
                            const GroupOptions& options, Deadline deadline) {
  if (meeting.size() == 1) return make_self_group(name);
  if (backend == NCCL && meeting.passes_descriptors())
    return make_shm_group(meeting, name, options, deadline);
  return make_hierarchical_group(TCP_CARRIER, meeting, name, options, deadline);
}

// One member makes the id of a communicator and tells it to the other members. So NCCL needs no other rank
// either.
std::shared_ptr<Backend> NcclBackend::make_groups(const SplitRequest& split) {
  core_->refuse_fork(name_of(split.callers));
  core_->require_usable(std::string(name_of(split.callers)));
  std::shared_ptr<Backend> cpu =
      cpu_->make_groups({split.parts, cpu_group_name(split.name), split.options, split.callers});
  const std::vector<int>* const mine = part_of(split.parts, rank());
  if (!cpu || mine == nullptr) return nullptr;
  std::vector<int> world_ranks = *mine;
  if (const auto& outer = core_->membership().world_ranks; !outer.empty())
    std::transform(mine->begin(), mine->end(), world_ranks.begin(),
                   [&](int rank) { return outer[static_cast<std::size_t>(rank)]; });
  auto core = make_core(cpu, {split.name, core_->membership().backend, std::move(world_ranks), split.options,
                              core_->membership().device});
  return std::make_shared<NcclBackend>(std::move(core));
}

}  // namespace

ProcessGroup make_nccl_group(std::string_view backend, Meeting& meeting, const std::string& group_name,
                             const GroupOptions& options, Deadline deadline) {
  constexpr long MOST_LOCAL_RANKS = 1 << 20;
  const int lower = lower_ranks_here(meeting, deadline);
  const long local_rank = env_number("LOCAL_RANK", 0, MOST_LOCAL_RANKS).value_or(lower);
  const ProcessGroup cpu = make_cpu_group(backend, meeting, cpu_group_name(group_name), options, deadline);
  return make_nccl_group(backend, cpu, group_name, options, static_cast<int>(local_rank));
}

std::string cpu_group_name(const std::string& group_name) { return group_name + "/cpu"; }

ProcessGroup make_nccl_group(std::string_view backend, const ProcessGroup& cpu, const std::string& group_name,
                             const GroupOptions& options, int local_rank) {
  auto core = make_core(cpu.shared_backend(), {group_name, backend, {}, options, local_rank});
  return ProcessGroup(std::make_shared<NcclBackend>(std::move(core)));
}

}  // namespace lockstep

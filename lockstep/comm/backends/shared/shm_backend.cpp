#include "lockstep/comm/backends/shared/shm_backend.h"

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/backends/segment/paths.h"
#include "lockstep/comm/backends/segment/segment_plan.h"
#include "lockstep/comm/backends/shared/backoff.h"
#include "lockstep/comm/backends/shared/split.h"
#include "lockstep/os/cpu_share.h"
#include "lockstep/os/open_files.h"
#include "lockstep/os/peer_memory.h"
#include "lockstep/os/process.h"
#include "lockstep/os/process_handle.h"

namespace lockstep {
namespace {

// When the ranks have mapped all segments, each tells the others whether it can read the private memory of
// all.
constexpr const char* READY = "0";
constexpr const char* READY_TO_READ = "1";

class Processes : public shared::Peers {
 public:
  Processes(std::vector<ProcessHandle> handles, std::vector<PeerMemory> memories)
      : handles_(std::move(handles)), memories_(std::move(memories)) {}

  bool alive(int rank) const override { return handle(rank).alive(); }
  std::string detail(int rank) const override { return str("pid ", handle(rank).pid()); }
  bool stopped(int rank) const override {
    const char state = handle(rank).state();
    return state == 'T' || state == 't';
  }
  bool lend_private_memory() const override { return lends_; }
  bool read(int rank, std::uint64_t address, std::span<std::byte> to) const override {
    // Reads first and checks the process afterwards. If the process is alive now, it was the owner during the
    // read, and not another process with the same pid.
    return memories_.at(static_cast<std::size_t>(rank)).read(address, to) && alive(rank);
  }

  bool can_read_all() const {
    return std::all_of(memories_.begin(), memories_.end(),
                       [](const auto& memory) { return memory.can_be_read(); });
  }
  void lend() { lends_ = true; }

 private:
  const ProcessHandle& handle(int rank) const { return handles_.at(static_cast<std::size_t>(rank)); }
  std::vector<ProcessHandle> handles_;
  std::vector<PeerMemory> memories_;
  bool lends_ = false;
};

// What a rank announces in the meeting: "4121 94021:77 3/1.5". These are its pid, how to try its memory, and
// its share of the machine.
struct ShmIntroduction {
  pid_t pid = 0;
  std::string memory;
  CpuShare cpus;
};

std::string introduce_oneself() {
  return str(current_pid(), " ", PeerMemory::introduction(), " ", text_of(cpu_share()));
}

ShmIntroduction parse_introduction(const std::string& text) {
  ShmIntroduction rank;
  const std::size_t first = text.find(' ');
  const std::size_t second = first == std::string::npos ? first : text.find(' ', first + 1);
  if (second != std::string::npos) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + first, rank.pid);
    auto share = parse_cpu_share(text.substr(second + 1));
    if (error == std::errc() && end == text.data() + first && rank.pid > 0 && share) {
      rank.memory = text.substr(first + 1, second - first - 1);
      rank.cpus = std::move(*share);
      return rank;
    }
  }
  throw StoreError(R"(backend "shm": a rank announced itself as ")" + printable(text) +
                   R"(" instead of by its pid and CPUs)");
}

// Open files of a rank: a handle and the trace of each rank, and each rank's segments until they are mapped.
std::size_t files_of(const Meeting& meeting) { return 2 * static_cast<std::size_t>(meeting.size()) + 4; }

struct Segment {
  std::shared_ptr<SharedMemory> memory;
  std::string bound;  // the limit that made it smaller than the machine's memory
};

// Makes a segment of a size that every rank can map. Collective.
Segment make_segment(Meeting& meeting, Deadline deadline) {
  const std::string mine = shared::segment_plan(meeting.size(), shared::memory_facts()).text();
  std::vector<shared::SegmentPlan> plans;
  for (const Message& message : meeting.exchange(mine, {}, deadline)) {
    const auto plan = shared::SegmentPlan::parse(message.text);
    if (!plan)
      throw StoreError(
          str(meeting.place(), ": a rank announced its memory as \"", printable(message.text), "\""));
    plans.push_back(*plan);
  }
  const std::size_t least = shared::smallest(plans);
  const std::string bound = shared::explain(plans[least], static_cast<int>(least));
  // at least as much as the control segment
  const std::size_t enough = shared::Control::bytes(meeting.size());
  if (plans[least].bytes < enough) {
    throw SystemError(
        str(meeting.place(), ": at most ", plans[least].bytes,
            " bytes of shared memory are possible for each rank, and ", enough, " are needed", bound),
        ENOMEM);
  }
  return {SharedMemory::create(plans[least].bytes), bound};
}

}  // namespace

ProcessGroup make_shm_group(Meeting& meeting, const std::string& group_name, const GroupOptions& options,
                            Deadline deadline) {
  return make_shm_group(meeting, group_name, options, deadline, {},
                        TraceMemory::create(meeting.rank(), meeting.size()));
}

ProcessGroup make_shm_group(Meeting& meeting, const std::string& group_name, const GroupOptions& options,
                            Deadline deadline, std::vector<int> job_ranks,
                            std::shared_ptr<TraceMemory> trace) {
  shared::path_table();  // throws on every rank before anything is exchanged, if LOCKSTEP_PATHS is wrong
  shared::Membership membership;
  membership.rank = meeting.rank();
  membership.size = meeting.size();
  membership.group_name = group_name;
  membership.backend_name = "shm";
  membership.options = options;
  membership.job_ranks = std::move(job_ranks);
  make_room_for_files(files_of(meeting), meeting.place());
  const Segment mine = make_segment(meeting, deadline);
  std::shared_ptr<SharedMemory> control;
  std::vector<int> fds = {mine.memory->fd()};
  if (meeting.rank() == 0) {
    const std::size_t bytes = shared::Control::bytes(meeting.size());
    control = SharedMemory::create(bytes);
    control->reserve(0, bytes);
    const shared::Control fresh(control->data(), meeting.size(), /*fresh=*/true);
    fds.push_back(control->fd());
  }
  std::vector<Message> all = meeting.exchange(introduce_oneself(), fds, deadline);
  std::vector<ProcessHandle> handles;
  std::vector<PeerMemory> memories;
  std::vector<CpuShare> shares;
  for (int r = 0; r < meeting.size(); ++r) {
    Message& message = all[static_cast<std::size_t>(r)];
    if (message.fds.size() != (r == 0 ? 2U : 1U)) {
      throw StoreError(str(meeting.place(), ": rank ", r, " sent ", message.fds.size(), " memory segments"));
    }
    ShmIntroduction introduction = parse_introduction(message.text);
    handles.emplace_back(introduction.pid);
    memories.emplace_back(introduction.pid, introduction.memory);
    shares.push_back(std::move(introduction.cpus));
    membership.data.push_back(r == meeting.rank() ? mine.memory
                                                  : SharedMemory::adopt(std::move(message.fds[0])));
    if (r == 0 && !control) control = SharedMemory::adopt(std::move(message.fds[1]));
  }
  shared::cpus_of_ranks.store(usable_cpus(shares), std::memory_order_relaxed);
  membership.control = {control, control->data()};
  membership.own = std::make_shared<shared::RankMemory>(mine.memory, mine.bound);
  const auto peers = std::make_shared<Processes>(std::move(handles), std::move(memories));
  membership.peers = peers;
  membership.trace = std::move(trace);
  membership.trace->share(meeting, deadline);
  // Every rank has now mapped all segments and holds a handle of every process. From here on all ranks see a
  // death.
  const auto ready = meeting.exchange(peers->can_read_all() ? READY_TO_READ : READY, {}, deadline);
  if (std::all_of(ready.begin(), ready.end(), [](const Message& rank) { return rank.text == READY_TO_READ; }))
    peers->lend();
  return ProcessGroup(shared::make_engine(std::move(membership)));
}

}  // namespace lockstep

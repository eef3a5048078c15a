#include "lockstep/comm/trace/trace_memory.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <new>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/meeting/job_identity.h"
#include "lockstep/comm/trace/trace_files.h"
#include "lockstep/os/file_size_limit.h"
#include "lockstep/os/process.h"
#include "lockstep/os/process_table.h"

namespace lockstep {
namespace {

using trace::Record;
using trace::RingHeader;
using trace::RingState;

std::string job_name() {
  try {
    const JobIdentity identity = job_identity(job_environment());
    return identity.job.empty() ? identity.launcher : identity.job;
  } catch (const InvalidArgument&) {
    // the program passed rank and size to init_process_group(), so the environment does not describe this
    // rank
    return {};
  }
}

// The file has room for fewer groups where the size of files is limited (ulimit -f).
std::size_t rings_that_fit() {
  const std::size_t room = largest_file();
  return room <= trace::HEADER_BYTES
             ? 0
             : std::min(trace::RINGS, (room - trace::HEADER_BYTES) / trace::RING_BYTES);
}

// The other bytes are zero, as in all new memory.
void put(const std::string& text, char* place, std::size_t size) { text.copy(place, size - 1); }

// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): how many this process has had
std::atomic<std::uint32_t> worlds = 0;

CycleClock::Pair write_header(std::byte* memory, int rank, int size, std::uint32_t world, bool is_joining) {
  const CycleClock clock = CycleClock::of_this_machine();
  auto& header = *new (memory) trace::TraceHeader;
  const CycleClock::Pair pair = clock.pair();
  header.pid = current_pid();
  header.process_start = process_stat(current_pid()).start_time;
  header.rank = rank;
  header.size = size;
  header.counts_cycles = clock.counts_cycles() ? 1 : 0;
  header.world = world;
  header.first_count = pair.count;
  header.first_nanoseconds = pair.nanoseconds;
  put(job_name(), header.job, sizeof(header.job));
  put(program_name(), header.program, sizeof(header.program));
  header.is_joining = is_joining ? 1 : 0;
  header.magic.store(trace::MAGIC, std::memory_order_release);
  return pair;
}

}  // namespace

std::shared_ptr<SharedMemory> TraceMemory::announce(int rank, int size) {
  auto memory = SharedMemory::create(
      trace::HEADER_BYTES, {.name = trace::FILE_NAME, .huge_pages = false, .need_not_be_shared = true});
  memory->reserve(0, trace::HEADER_BYTES);
  write_header(memory->data(), rank, size, worlds.load() + 1, /*is_joining=*/true);
  return memory;
}

std::shared_ptr<TraceMemory> TraceMemory::create(int rank, int size) {
  const auto memory =
      SharedMemory::create(trace::HEADER_BYTES + rings_that_fit() * trace::RING_BYTES,
                           {.name = trace::FILE_NAME, .huge_pages = false, .need_not_be_shared = true});
  memory->reserve(0, trace::HEADER_BYTES);
  const CycleClock::Pair pair =
      write_header(memory->data(), rank, size, worlds.fetch_add(1) + 1, /*is_joining=*/false);
  return std::shared_ptr<TraceMemory>(new TraceMemory(memory, CycleClock::of_this_machine(), pair, size));
}

void TraceMemory::share(Meeting& meeting, Deadline deadline) {
  if (!meeting.passes_descriptors() || meeting.size() == 1) return;
  std::vector<int> own;
  if (memory_->fd() >= 0) own.push_back(memory_->fd());
  std::vector<Message> all = meeting.exchange("trace", own, deadline);
  for (int r = 0; r < meeting.size(); ++r) {
    if (r == meeting.rank()) continue;
    for (Fd& file : all[static_cast<std::size_t>(r)].fds) others_.push_back(std::move(file));
  }
}

// The rings of the last groups that are gone are kept for a while, so that their records can still be read.
std::byte* TraceMemory::free_ring() {
  if (fork_generation() != made_in_) return nullptr;
  constexpr std::size_t KEPT = 8;
  if (closed_.size() > KEPT || (opened_ == rings_ && !closed_.empty())) {
    std::byte* ring = closed_.front();
    closed_.pop_front();
    return ring;
  }
  if (opened_ == rings_) return nullptr;
  std::byte* ring = ring_at(opened_);
  memory_->reserve(static_cast<std::size_t>(ring - memory_->data()), trace::RING_BYTES);
  ++opened_;
  return ring;
}

TraceMemory::Ring TraceMemory::open(const TracedGroup& group) {
  const std::lock_guard lock(mutex_);
  Ring ring;
  std::byte* memory = free_ring();
  if (memory == nullptr) {
    constexpr std::align_val_t LINE{trace::LINE_BYTES};
    ring.own = {::operator new(trace::RING_BYTES, LINE), [](void* own) { ::operator delete(own, LINE); }};
    memory = static_cast<std::byte*>(ring.own.get());
    std::memset(memory, 0, trace::RING_BYTES);
  }
  prepare(memory, group);
  ring.header = reinterpret_cast<RingHeader*>(memory);
  ring.records = reinterpret_cast<Record*>(memory + trace::RECORDS_AT);
  return ring;
}

void TraceMemory::prepare(std::byte* ring, const TracedGroup& group) {
  auto& header = *reinterpret_cast<RingHeader*>(ring);
  const std::uint32_t generation = header.generation.load(std::memory_order_relaxed);
  header.state.store(static_cast<std::uint32_t>(RingState::FREE), std::memory_order_relaxed);
  header.generation.store(generation + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  constexpr std::size_t KEPT = offsetof(RingHeader, rank);
  std::memset(ring + KEPT, 0, trace::RING_BYTES - KEPT);
  header.rank = group.rank;
  header.size = group.size;
  const bool lists = !group.world_ranks.empty() && group.world_ranks.size() <= trace::MAX_MEMBERS;
  header.lists_members = lists ? 1 : 0;
  if (lists)
    std::memcpy(ring + sizeof(RingHeader), group.world_ranks.data(), group.world_ranks.size() * sizeof(int));
  put(group.name, header.name, sizeof(header.name));
  put(group.backend, header.backend, sizeof(header.backend));
  header.generation.store(generation + 2, std::memory_order_release);
  header.state.store(static_cast<std::uint32_t>(RingState::OPEN), std::memory_order_release);
}

void TraceMemory::close(const Ring& ring) {
  ring.header->state.store(static_cast<std::uint32_t>(RingState::CLOSED), std::memory_order_release);
  if (ring.own) return;
  const std::lock_guard lock(mutex_);
  closed_.push_back(reinterpret_cast<std::byte*>(ring.header));
}

std::string TraceMemory::write_file() {
  const std::lock_guard lock(mutex_);
  return write_failure_trace(*this);
}

}  // namespace lockstep

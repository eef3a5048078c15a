#include "lockstep/comm/trace/rank_trace.h"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <numeric>

#include "lockstep/base/str.h"
#include "lockstep/os/machine.h"
#include "lockstep/os/process_table.h"

namespace lockstep {
namespace {

using trace::Record;
using trace::RingHeader;
using trace::RingState;
using trace::TraceHeader;

std::int64_t nanoseconds(std::uint64_t count, const TraceTimes& times) {
  return CycleClock::nanoseconds(count, times.first, times.now);
}

template <std::size_t N> std::string text_of(const char (&characters)[N]) {
  return printable(std::string_view(characters, strnlen(characters, N)), N);
}

template <typename Enum> Enum checked(std::uint64_t value, int count) {
  return static_cast<Enum>(std::min<std::uint64_t>(value & 0xffU, static_cast<std::uint64_t>(count) - 1));
}

Call unpack_call(std::uint64_t packed, std::uint64_t count) {
  return {.verb = checked<Verb>(packed, VERB_COUNT),
          .dtype = checked<DType>(packed >> 8U, DTYPE_COUNT),
          .op = checked<ReduceOp>(packed >> 16U, REDUCE_OP_COUNT),
          .purpose = checked<Purpose>(packed >> 24U, PURPOSE_COUNT),
          .root = static_cast<std::int32_t>(packed >> 32U),
          .count = count};
}

std::vector<int> members_of(const RingHeader& header, const std::byte* ring, int world_size) {
  const auto size = static_cast<std::size_t>(std::clamp(header.size, 1, world_size));
  std::vector<int> members(size);
  std::iota(members.begin(), members.end(), 0);
  if (header.lists_members != 0 && size <= trace::MAX_MEMBERS)
    std::memcpy(members.data(), ring + sizeof(RingHeader), size * sizeof(int));
  return members;
}

std::string time_for_people() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32] = {};
  std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S UTC", &utc);
  return text;
}

char letter_of(const TraceHeader& header) {
  constexpr char ENDED = 'X';
  const ProcessStat life = process_stat(static_cast<pid_t>(header.pid));
  return life.start_time == header.process_start && life.state != 'Z' ? life.state : ENDED;
}

}  // namespace

std::string_view name_of(CallState state) {
  switch (state) {
    case CallState::POSTED: return "posted";
    case CallState::DONE: return "done";
    case CallState::FAILED: return "failed";
  }
  return "?";
}

// The reader's side of the seqlock of trace_layout.h.
std::optional<TraceRecord> read_record(const Record& record, const TraceTimes& times) {
  const std::uint64_t stamp = record.stamp.load(std::memory_order_acquire);
  if (stamp == 0 || stamp % 2 != 0) return std::nullopt;
  TraceRecord out;
  out.number = stamp / 2;
  // Loaded first, so that the fields that finish() changed before it are seen.
  const std::uint64_t end = record.end.load(std::memory_order_acquire);
  out.sequence = record.sequence.load(std::memory_order_relaxed);
  out.call =
      unpack_call(record.call.load(std::memory_order_relaxed), record.count.load(std::memory_order_relaxed));
  out.tag = static_cast<int>(record.tag.load(std::memory_order_relaxed));
  const std::uint64_t start = record.start.load(std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_acquire);
  if (record.stamp.load(std::memory_order_relaxed) != stamp) return std::nullopt;
  out.start_ns = nanoseconds(start, times);
  if (end == 0) return out;
  out.state = end % 2 == 0 ? CallState::DONE : CallState::FAILED;
  // `end` lacks the clock's upper bit, which is that of the start. No call lasts long enough to change it.
  out.end_ns = nanoseconds(end / 2 | (start & (std::uint64_t{1} << 63U)), times);
  return out;
}

std::optional<GroupTrace> read_ring(const std::byte* ring, int world_size, const TraceTimes& times) {
  const auto& header = *reinterpret_cast<const RingHeader*>(ring);
  const auto state = static_cast<RingState>(header.state.load(std::memory_order_acquire));
  const std::uint32_t generation = header.generation.load(std::memory_order_acquire);
  if (state == RingState::FREE || generation == 0 || generation % 2 != 0) return std::nullopt;
  GroupTrace group;
  group.name = text_of(header.name);
  group.backend = text_of(header.backend);
  group.rank = header.rank;
  group.members = members_of(header, ring, world_size);
  group.is_closed = state == RingState::CLOSED;
  if (header.has_failed.load(std::memory_order_acquire) != 0) group.failure = text_of(header.failure);
  const auto* records = reinterpret_cast<const Record*>(ring + trace::RECORDS_AT);
  for (std::size_t i = 0; i < trace::RECORDS; ++i) {
    if (const auto record = read_record(records[i], times)) group.records.push_back(*record);
  }
  std::atomic_thread_fence(std::memory_order_acquire);
  if (header.generation.load(std::memory_order_relaxed) != generation) return std::nullopt;
  std::sort(group.records.begin(), group.records.end(),
            [](const TraceRecord& a, const TraceRecord& b) { return a.number < b.number; });
  if (!group.records.empty()) group.calls = group.records.back().number;
  return group;
}

std::optional<RankTrace> read_trace(std::span<const std::byte> bytes) {
  constexpr int MAX_WORLD = 1 << 20;
  if (bytes.size() < trace::HEADER_BYTES) return std::nullopt;
  const auto& header = *reinterpret_cast<const TraceHeader*>(bytes.data());
  if (header.magic.load(std::memory_order_acquire) != trace::MAGIC) return std::nullopt;
  if (header.size < 1 || header.size > MAX_WORLD || header.rank < 0 || header.rank >= header.size)
    return std::nullopt;
  TraceTimes times{{header.first_count, header.first_nanoseconds}, {}};
  times.now = CycleClock(header.counts_cycles != 0).pair();
  RankTrace trace;
  trace.rank = header.rank;
  trace.size = header.size;
  trace.pid = header.pid;
  trace.host = host_name();
  trace.job = text_of(header.job);
  trace.program = text_of(header.program);
  trace.world = header.world;
  trace.process = letter_of(header);
  trace.read_at = time_for_people();
  if (header.is_joining != 0) trace.joining_ns = header.first_nanoseconds;
  const std::size_t rings = (bytes.size() - trace::HEADER_BYTES) / trace::RING_BYTES;
  for (std::size_t i = 0; i < std::min(rings, trace::RINGS); ++i) {
    const std::byte* ring = bytes.data() + trace::HEADER_BYTES + i * trace::RING_BYTES;
    if (auto group = read_ring(ring, trace.size, times)) trace.groups.push_back(std::move(*group));
  }
  trace.read_ns = CycleClock::steady_nanoseconds();
  return trace;
}

}  // namespace lockstep

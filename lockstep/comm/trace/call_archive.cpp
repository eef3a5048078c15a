#include "lockstep/comm/trace/call_archive.h"

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>

#include "lockstep/base/error.h"
#include "lockstep/comm/trace/flight_recorder.h"

namespace lockstep {
namespace {

struct Shelves {
  std::mutex mutex;
  // guarded by mutex
  bool is_in_use = false;
  CycleClock::Pair began;
  std::map<const FlightRecorder*, std::deque<trace::Record>> kept;  // overwritten records, by recorder
  std::vector<GroupTrace> over;                                     // the calls of recorders that are gone
};

// Never destroyed, because groups may outlive all other static objects.
Shelves& shelves() {
  static auto& all = *new Shelves;
  return all;
}

void copy(const trace::Record& from, trace::Record& to) {
  constexpr auto RELAXED = std::memory_order_relaxed;
  to.stamp.store(from.stamp.load(RELAXED), RELAXED);
  to.sequence.store(from.sequence.load(RELAXED), RELAXED);
  to.call.store(from.call.load(RELAXED), RELAXED);
  to.count.store(from.count.load(RELAXED), RELAXED);
  to.tag.store(from.tag.load(RELAXED), RELAXED);
  to.start.store(from.start.load(RELAXED), RELAXED);
  to.end.store(from.end.load(RELAXED), RELAXED);
}

// Adds the calls in the ring and those that were kept, since `began`. A call may be in both: it is kept
// before it is overwritten.
void add_calls(const FlightRecorder& recorder, const std::deque<trace::Record>& kept,
               std::vector<GroupTrace>& all) {
  std::optional<GroupTrace> ring = recorder.read();
  if (!ring) return;
  const TraceTimes times = recorder.times();
  std::map<std::uint64_t, TraceRecord> by_number;
  for (const trace::Record& record : kept) {
    if (const auto read = read_record(record, times)) by_number.emplace(read->number, *read);
  }
  for (const TraceRecord& record : ring->records) by_number.insert_or_assign(record.number, record);
  ring->records.clear();
  // `began` is converted with the same two moments as the records.
  const std::int64_t began = CycleClock::nanoseconds(shelves().began.count, times.first, times.now);
  for (const auto& [number, record] : by_number) {
    if (record.state == CallState::POSTED || record.end_ns >= began) ring->records.push_back(record);
  }
  if (!ring->records.empty()) all.push_back(std::move(*ring));
}

}  // namespace

CallArchive::CallArchive() {
  const std::lock_guard lock(shelves().mutex);
  if (shelves().is_in_use) throw InvalidArgument("there is a CallArchive in this process already");
  shelves().is_in_use = true;
  shelves().began = CycleClock::of_this_machine().pair();
  FlightRecorder::is_archived.store(true, std::memory_order_relaxed);
}

CallArchive::~CallArchive() {
  const std::lock_guard lock(shelves().mutex);
  FlightRecorder::is_archived.store(false, std::memory_order_relaxed);
  shelves().is_in_use = false;
  shelves().over.clear();
  for (auto& [recorder, kept] : shelves().kept) kept.clear();
}

std::vector<GroupTrace> CallArchive::groups() const {
  const std::lock_guard lock(shelves().mutex);
  std::vector<GroupTrace> all = shelves().over;
  for (const auto& [recorder, kept] : shelves().kept) add_calls(*recorder, kept, all);
  std::stable_sort(all.begin(), all.end(), [](const GroupTrace& a, const GroupTrace& b) {
    return a.records.front().start_ns < b.records.front().start_ns;
  });
  return all;
}

void CallArchive::enter(const FlightRecorder& recorder) {
  const std::lock_guard lock(shelves().mutex);
  shelves().kept[&recorder];
}

void CallArchive::leave(const FlightRecorder& recorder) noexcept {
  const std::lock_guard lock(shelves().mutex);
  const auto place = shelves().kept.find(&recorder);
  if (place == shelves().kept.end()) return;
  try {
    if (shelves().is_in_use) add_calls(recorder, place->second, shelves().over);
  } catch (const std::bad_alloc&) {  // the archive loses the group's calls
  }
  shelves().kept.erase(place);
}

void CallArchive::keep(const FlightRecorder& recorder, const trace::Record& record) noexcept {
  const std::lock_guard lock(shelves().mutex);
  if (!shelves().is_in_use) return;
  try {
    copy(record, shelves().kept[&recorder].emplace_back());
  } catch (const std::bad_alloc&) {  // the archive loses this call
  }
}

}  // namespace lockstep

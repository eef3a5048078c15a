#include "lockstep/comm/trace/flight_recorder.h"

#include <cstring>

#include "lockstep/comm/trace/call_archive.h"
#include "lockstep/os/failure_note.h"
#include "lockstep/os/fork_generation.h"

namespace lockstep {

FlightRecorder::FlightRecorder(std::shared_ptr<TraceMemory> memory, const TracedGroup& group)
    : memory_(std::move(memory)),
      clock_(memory_->clock()),
      ring_(memory_->open(group)),
      made_in_(fork_generation()),
      world_ranks_(group.world_ranks),
      records_(ring_.records) {
  CallArchive::enter(*this);
}

FlightRecorder::~FlightRecorder() {
  CallArchive::leave(*this);
  if (fork_generation() == made_in_) memory_->close(ring_);
}

std::size_t FlightRecorder::make_room(std::size_t slot) noexcept {
  for (std::size_t passed = 0; passed < trace::RECORDS && is_open(records_[slot]); ++passed)
    slot = (slot + 1) % trace::RECORDS;
  if (records_[slot].stamp.load(std::memory_order_relaxed) != 0) CallArchive::keep(*this, records_[slot]);
  return slot;
}

std::optional<GroupTrace> FlightRecorder::read() const {
  if (fork_generation() != made_in_) return std::nullopt;
  return read_ring(reinterpret_cast<const std::byte*>(ring_.header), memory_->world_size(), memory_->times());
}

void FlightRecorder::leave() const noexcept {
  if (fork_generation() != made_in_) return;
  ring_.header->state.store(static_cast<std::uint32_t>(trace::RingState::CLOSED), std::memory_order_release);
}

int FlightRecorder::world_rank(int of) const {
  if (of < 0) return FailureNote::SOMEBODY;
  if (world_ranks_.empty()) return of;
  const auto at = static_cast<std::size_t>(of);
  return at < world_ranks_.size() ? world_ranks_[at] : FailureNote::SOMEBODY;
}

const std::string& FlightRecorder::note_failure(const std::string& what, ErrorCode code, int peer,
                                                int reporter) {
  if (has_failed_) return note_;
  has_failed_ = true;
  lockstep::note_failure(code, world_rank(peer >= 0 ? peer : reporter));
  trace::RingHeader& header = *ring_.header;
  what.copy(header.failure, sizeof(header.failure) - 1);
  header.has_failed.store(1, std::memory_order_release);
  note_ = memory_->write_file();
  return note_;
}

}  // namespace lockstep

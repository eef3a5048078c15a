// How a rank gives what it has to a collective: the half of CollectiveOperation that writes.
#include <algorithm>
#include <cstring>
#include <functional>

#include "lockstep/base/round_up.h"
#include "lockstep/comm/backends/shared/collective.h"

namespace lockstep::shared {
namespace {

constexpr std::size_t table_bytes(std::size_t parts) { return round_up(parts * sizeof(Part), LINE); }

}  // namespace

void CollectiveOperation::contribute_inline(const void* data, std::size_t bytes) {
  mine_ = Placement::IN_LINE;
  std::memcpy(line(engine_->rank()).payload, data, bytes);
}

void CollectiveOperation::contribute_block(const void* data, std::size_t bytes) {
  mine_ = Placement::IN_BLOCK;
  block_ = engine_->stage(bytes);
  staged_bytes_ = bytes;
  std::memcpy(engine_->arena().at(block_), data, bytes);
}

void CollectiveOperation::lend(const void* data, bool others_write) {
  mine_ = Placement::IN_PLACE;
  block_ = engine_->arena().offset_of(data);
  lent_ = true;
  others_write_ = others_write;
}

void CollectiveOperation::contribute_data(const void* data, std::size_t bytes) {
  if (bytes == 0) return;
  if (bytes <= PostLine::ROOM) return contribute_inline(data, bytes);
  const std::span whole(static_cast<const std::byte*>(data), bytes);
  if (engine_->arena().contains(data, bytes) && !is_overwritten(whole))
    return lend(data, /*others_write=*/false);
  if (bytes <= STAGED_PIECE) return contribute_block(data, bytes);
  mine_ = Placement::GROWING;
  block_ = engine_->stage(bytes);
  staged_bytes_ = bytes;
  growth_.push_back({{static_cast<const std::byte*>(data), bytes}, 0});
}

bool CollectiveOperation::is_overwritten(std::span<const std::byte> data) const {
  const auto overlaps = [&](const void* output, std::size_t bytes) {
    const auto* first = static_cast<const std::byte*>(output);
    const std::less<> before;
    return bytes > 0 && before(first, data.data() + data.size()) && before(data.data(), first + bytes);
  };
  const bool has_one = call_.verb == Verb::REDUCE_SCATTER || call_.verb == Verb::SCATTER;
  if (has_one && overlaps(request_.output, bytes_of(call_.count))) return true;
  for (std::size_t r = 0; r < request_.outputs.size(); ++r) {
    const auto& output = request_.outputs[r];
    // What a rank gives itself may be in place already.
    if (static_cast<int>(r) == engine_->rank() && output.data() == data.data()) continue;
    if (overlaps(output.data(), output.size())) return true;
  }
  return false;
}

bool CollectiveOperation::is_private(std::span<const std::byte> data) const {
  return !engine_->arena().contains(data.data(), data.size()) && !is_overwritten(data);
}

void CollectiveOperation::lend_private(std::span<const std::byte> data) {
  mine_ = Placement::PRIVATE;
  block_ = reinterpret_cast<std::uintptr_t>(data.data());
  lent_ = true;
}

bool CollectiveOperation::contribute_by_window(std::size_t window_bytes) {
  const auto window = engine_->take_window(window_bytes);
  if (!window) return false;
  has_window_ = true;
  mine_ = Placement::WINDOWED;
  block_ = *window;
  return true;
}

void CollectiveOperation::write_sizes(const Parts& parts) {
  std::vector<Part> entries;
  for (const auto& part : parts) entries.push_back({0, part.size(), 0});
  std::memcpy(engine_->arena().at(block_), entries.data(), entries.size() * sizeof(Part));
}

void CollectiveOperation::contribute_parts(const Parts& parts) {
  if (are_in_place(parts)) return lend_parts(parts, Placement::IN_PLACE);
  stage_parts(parts);
  mine_ = staged_bytes_ <= STAGED_PIECE ? Placement::IN_BLOCK : Placement::GROWING;
  if (mine_ == Placement::IN_BLOCK) copy_pieces();
}

bool CollectiveOperation::are_in_place(const Parts& parts) const {
  std::size_t bytes = 0;
  for (std::size_t r = 0; r < parts.size(); ++r) {
    const auto& part = parts[r];
    if (static_cast<int>(r) == engine_->rank() || part.empty()) continue;
    bytes += part.size();
    if (!engine_->arena().contains(part.data(), part.size()) || is_overwritten(part)) return false;
  }
  return bytes > STAGED_PIECE;
}

// Then the block is a table alone.
void CollectiveOperation::lend_parts(const Parts& parts, Placement where) {
  mine_ = where;
  lent_ = true;
  staged_bytes_ = table_bytes(parts.size());
  block_ = engine_->stage(staged_bytes_);
  std::vector<Part> entries(parts.size());
  for (std::size_t r = 0; r < parts.size(); ++r) {
    const bool has_none = static_cast<int>(r) == engine_->rank() || parts[r].empty();
    std::size_t at = block_;
    if (!has_none) {
      at = where == Placement::IN_PLACE ? engine_->arena().offset_of(parts[r].data())
                                        : reinterpret_cast<std::uintptr_t>(parts[r].data());
    }
    entries[r] = {at, parts[r].size(), 0};
  }
  std::memcpy(engine_->arena().at(block_), entries.data(), entries.size() * sizeof(Part));
}

// A block with its table, and what will be copied in behind that: the others' parts, beginning with that of the rank behind
// this one, so that not all ranks read from the same one first.
void CollectiveOperation::stage_parts(const Parts& parts) {
  std::vector<Part> entries(parts.size());
  std::size_t end = table_bytes(parts.size());
  for (std::size_t step = 1; step < parts.size(); ++step) {
    const std::size_t r = (static_cast<std::size_t>(engine_->rank()) + step) % parts.size();
    entries[r] = {end, parts[r].size(), end + parts[r].size()};
    growth_.push_back({parts[r], end});
    end += round_up(parts[r].size(), LINE);
  }
  block_ = engine_->stage(end);
  staged_bytes_ = end;
  for (Part& entry : entries) entry.offset += block_;
  std::memcpy(engine_->arena().at(block_), entries.data(), entries.size() * sizeof(Part));
}

void CollectiveOperation::copy_pieces() {
  for (const Piece& piece : growth_) {
    if (!piece.data.empty())
      std::memcpy(engine_->arena().at(block_ + piece.at), piece.data.data(), piece.data.size());
  }
  growth_.clear();
}

// Others read each piece once `staged` covers it; the last one counts whole.
void CollectiveOperation::fill() {
  auto& staged = share(engine_->rank()).staged;
  for (const Piece& piece : growth_) {
    for (std::size_t begin = 0; begin < piece.data.size();) {
      const std::size_t at = piece.at + begin;
      const std::size_t bytes = std::min(STAGED_PIECE - at % STAGED_PIECE, piece.data.size() - begin);
      std::memcpy(engine_->arena().at(block_ + at), piece.data.data() + begin, bytes);
      copied_in(piece.data.subspan(begin, bytes));
      begin += bytes;
      if ((at + bytes) % STAGED_PIECE != 0) continue;
      // Publishes the pieces copied so far.
      staged.store(pack(sequence_, (at + bytes) / STAGED_PIECE), std::memory_order_release);
    }
  }
  // And with this the rest.
  staged.store(pack(sequence_, (staged_bytes_ + STAGED_PIECE - 1) / STAGED_PIECE), std::memory_order_release);
  engine_->control().ring();
  growth_.clear();
}

void CollectiveOperation::contribute_late_block(const void* data, std::size_t bytes) {
  if (bytes > 0) contribute_block(data, bytes);
  publish_late_block();
}

void CollectiveOperation::contribute_late_parts(const Parts& parts) {
  if (staged_bytes_ > 0) engine_->retire(sequence_, block_, staged_bytes_);  // the table of what was lent
  stage_parts(parts);
  copy_pieces();
  publish_late_block();
}

void CollectiveOperation::publish_late_block() {
  lent_ = false;
  Share& mine = share(engine_->rank());
  mine.late_block = block_;
  // Publishes the block and where it is.
  mine.staged.store(pack(sequence_, 1), std::memory_order_release);
  engine_->control().ring();
}

}  // namespace lockstep::shared

#include "lockstep/comm/backends/shared/contribution.h"

#include <utility>

#include "lockstep/comm/backends/shared/request_buffers.h"

namespace lockstep::shared {
namespace {

// Whether all parts for other ranks can stay in place and are large enough.
bool are_in_place(const Arena& arena, const Request& request, int rank, const Parts& parts) {
  std::size_t bytes = 0;
  for (std::size_t r = 0; r < parts.size(); ++r) {
    const auto& part = parts[r];
    if (static_cast<int>(r) == rank || part.empty()) continue;
    bytes += part.size();
    if (!arena.contains(part.data(), part.size()) || is_overwritten(request, rank, part)) return false;
  }
  return bytes > STAGED_PIECE;
}

void write_table(std::byte* to, const std::vector<Part>& entries) {
  std::memcpy(to, entries.data(), entries.size() * sizeof(Part));
}

}  // namespace

void Contribution::put_in_line(const void* data, std::size_t bytes) {
  placement_ = Placement::IN_LINE;
  std::memcpy(context_->control().post_line(sequence_, context_->rank()).payload, data, bytes);
}

void Contribution::put_in_block(const void* data, std::size_t bytes) {
  placement_ = Placement::IN_BLOCK;
  stage(data, bytes);
}

void Contribution::put(const Request& request, const void* data, std::size_t bytes) {
  if (bytes == 0) return;
  if (bytes <= PostLine::ROOM) return put_in_line(data, bytes);
  const std::span whole(static_cast<const std::byte*>(data), bytes);
  if (context_->arena().contains(data, bytes) && !is_overwritten(request, context_->rank(), whole))
    return lend(data, Access::READ);
  if (bytes <= STAGED_PIECE) return put_in_block(data, bytes);
  placement_ = Placement::GROWING;
  block_ = context_->stage().take(bytes);
  staged_bytes_ = bytes;
  growth_.push_back({whole, 0});
}

void Contribution::put_parts(const Request& request, const Parts& parts) {
  if (are_in_place(context_->arena(), request, context_->rank(), parts))
    return lend_parts(parts, Placement::IN_PLACE);
  stage_parts(parts);
  placement_ = staged_bytes_ <= STAGED_PIECE ? Placement::IN_BLOCK : Placement::GROWING;
  if (placement_ == Placement::IN_BLOCK)
    copy_pieces(std::exchange(growth_, {}), context_->arena().at(block_));
}

void Contribution::lend(const void* data, Access access) {
  placement_ = Placement::IN_PLACE;
  block_ = context_->arena().offset_of(data);
  access_ = access;
}

void Contribution::lend_private(std::span<const std::byte> data) {
  placement_ = Placement::PRIVATE;
  block_ = reinterpret_cast<std::uintptr_t>(data.data());
  access_ = Access::READ;
}

// The block then holds only the table of parts.
void Contribution::lend_parts(const Parts& parts, Placement where) {
  placement_ = where;
  access_ = Access::READ;
  staged_bytes_ = table_bytes(parts.size());
  block_ = context_->stage().take(staged_bytes_);
  std::vector<Part> entries(parts.size());
  for (std::size_t r = 0; r < parts.size(); ++r) {
    const bool has_none = static_cast<int>(r) == context_->rank() || parts[r].empty();
    std::size_t at = block_;
    if (!has_none) {
      at = where == Placement::IN_PLACE ? context_->arena().offset_of(parts[r].data())
                                        : reinterpret_cast<std::uintptr_t>(parts[r].data());
    }
    entries[r] = {at, parts[r].size(), 0};
  }
  write_table(context_->arena().at(block_), entries);
}

bool Contribution::use_window(std::size_t window_bytes) {
  const auto window = context_->stage().take_window(window_bytes);
  if (!window) return false;
  placement_ = Placement::WINDOWED;
  block_ = *window;
  return true;
}

void Contribution::lend_window(const Parts& parts) {
  access_ = Access::READ;
  std::vector<Part> entries;
  for (const auto& part : parts) entries.push_back({0, part.size(), 0});
  write_table(context_->arena().at(block_), entries);
}

void Contribution::put_late_block(const void* data, std::size_t bytes) {
  if (bytes > 0) stage(data, bytes);
  publish_late_block();
}

void Contribution::put_late_parts(const Parts& parts) {
  retire();  // frees the table of the lent parts
  stage_parts(parts);
  copy_pieces(std::exchange(growth_, {}), context_->arena().at(block_));
  publish_late_block();
}

void Contribution::retire() {
  if (staged_bytes_ > 0) context_->stage().retire(sequence_, block_, staged_bytes_);
  staged_bytes_ = 0;
}

void Contribution::end() {
  if (placement_ == Placement::WINDOWED) context_->stage().give_back_window();
}

void Contribution::give_up() {
  if (access_ == Access::WRITE) context_->arena().condemn(block_);
  retire();
  access_ = Access::NOTHING;
}

const std::byte* Contribution::staged_block() const {
  return staged_bytes_ > 0 ? context_->arena().at(block_) : nullptr;
}

void Contribution::stage(const void* data, std::size_t bytes) {
  block_ = context_->stage().take(bytes);
  staged_bytes_ = bytes;
  std::memcpy(context_->arena().at(block_), data, bytes);
}

// Takes a block and writes its table. The parts are copied in later.
void Contribution::stage_parts(const Parts& parts) {
  PartPlan plan = part_plan(parts, context_->rank());
  block_ = context_->stage().take(plan.bytes);
  staged_bytes_ = plan.bytes;
  for (std::size_t step = 1; step < parts.size(); ++step) {
    const std::size_t r = (static_cast<std::size_t>(context_->rank()) + step) % parts.size();
    growth_.push_back({parts[r], plan.entries[r].offset});
  }
  for (Part& entry : plan.entries) entry.offset += block_;
  write_table(context_->arena().at(block_), plan.entries);
}

void Contribution::publish_late_block() {
  access_ = Access::NOTHING;
  context_->control().share(sequence_, context_->rank()).late_block = block_;
  publish(1);
  context_->control().ring();
}

// Publishes the pieces copied so far. For a late block, also publishes its offset.
void Contribution::publish(std::uint64_t pieces) {
  context_->control()
      .share(sequence_, context_->rank())
      .staged.store(pack(sequence_, pieces), std::memory_order_release);
}

}  // namespace lockstep::shared

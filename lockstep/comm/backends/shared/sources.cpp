#include "lockstep/comm/backends/shared/sources.h"

#include <algorithm>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::shared {
namespace {

const std::byte* as_pointer(std::uint64_t address) {
  return reinterpret_cast<const std::byte*>(address);  // NOLINT(performance-no-int-to-ptr)
}

}  // namespace

std::byte* Sources::address(int rank, std::size_t bytes) const {
  PostLine& theirs = line(rank);
  if (theirs.placement == Placement::IN_LINE) {
    if (bytes > PostLine::ROOM)
      throw InternalError(str("rank ", rank, " posted ", bytes, " bytes in its line"));
    return theirs.payload;
  }
  const bool late = may_come_late(theirs.placement) && reads_late_blocks();
  return context_->membership().block(rank, late ? share(rank).late_block : theirs.offset, bytes);
}

Source Sources::whole(int rank, std::size_t bytes) const {
  if (is_private(rank)) return {as_pointer(line(rank).offset), bytes, bytes, true};
  return {address(rank, bytes), bytes, bytes};
}

Part Sources::part_entry(int rank) const {
  const auto ranks = static_cast<std::size_t>(context_->size());
  const auto own = static_cast<std::size_t>(context_->rank());
  Part entry;
  std::memcpy(&entry, address(rank, ranks * sizeof(Part)) + own * sizeof(Part), sizeof(entry));
  return entry;
}

Source Sources::part(int rank, std::size_t bytes) const {
  const Part entry = part_entry(rank);
  if (is_private(rank)) return {as_pointer(entry.offset), bytes, bytes, true};
  const std::size_t behind = std::max<std::size_t>(entry.behind, bytes);
  return {context_->membership().block(rank, entry.offset, bytes), bytes, behind};
}

std::size_t Sources::readable(int rank, const Source& source) const {
  if (placement(rank) != Placement::GROWING) return source.bytes;
  const std::size_t staged =
      number_for(share(rank).staged.load(std::memory_order_acquire), sequence_) * STAGED_PIECE;
  const std::size_t begin = source.behind - source.bytes;
  return std::min(source.bytes, std::max(staged, begin) - begin);
}

bool Sources::is_complete(int rank) const {
  if (!is_posted(rank)) return false;
  const auto staged = number_for(share(rank).staged.load(std::memory_order_relaxed), sequence_);
  if (may_come_late(placement(rank))) return !reads_late_blocks() || staged > 0;
  return placement(rank) != Placement::GROWING || staged * STAGED_PIECE >= line(rank).bytes;
}

Copied Sources::copy_out(int rank, const Source& source, void* output, std::size_t& copied) const {
  const std::size_t there = readable(rank, source);
  if (there > copied && !is_lost(rank)) {
    const std::span to(static_cast<std::byte*>(output) + copied, there - copied);
    if (source.is_private) {
      const auto address = reinterpret_cast<std::uintptr_t>(source.data) + copied;
      if (!context_->membership().read_private(rank, address, to)) return Copied::UNREADABLE;
    } else {
      std::memcpy(to.data(), source.data + copied, to.size());
    }
    copied = there;
  }
  return copied == source.bytes && !is_lost(rank) ? Copied::ALL : Copied::SOME;
}

}  // namespace lockstep::shared

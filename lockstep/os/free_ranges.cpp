#include "lockstep/os/free_ranges.h"

#include <bit>

namespace lockstep {
namespace {

std::size_t length_class(std::size_t bytes) { return static_cast<std::size_t>(std::bit_width(bytes)) - 1; }

}  // namespace

FreeRanges::Addresses& FreeRanges::of_length(std::size_t bytes) { return by_length_.at(length_class(bytes)); }

AddressRange FreeRanges::insert(AddressRange range) {
  if (range.bytes == 0) return range;
  const auto next = ranges_.find(range.end());
  if (next != ranges_.end()) {
    const AddressRange above{next->first, next->second};
    erase(above);
    range.bytes += above.bytes;
  }
  if (const AddressRange below = ending_at(range.begin); below.bytes > 0) {
    erase(below);
    range = {below.begin, below.bytes + range.bytes};
  }
  ranges_.emplace(range.begin, range.bytes);
  of_length(range.bytes).insert(range.begin);
  total_ += range.bytes;
  return range;
}

void FreeRanges::erase(AddressRange range) {
  ranges_.erase(range.begin);
  of_length(range.bytes).erase(range.begin);
  total_ -= range.bytes;
}

// Ranges in the request's own length class may be too short, so each is compared. In every higher class all
// are long enough, so the lowest of each class suffices.
std::optional<std::uintptr_t> FreeRanges::take(std::size_t bytes) {
  std::optional<std::uintptr_t> lowest;
  for (const std::uintptr_t begin : of_length(bytes)) {
    if (ranges_.at(begin) < bytes) continue;
    lowest = begin;
    break;
  }
  for (std::size_t k = length_class(bytes) + 1; k < by_length_.size(); ++k) {
    const Addresses& longer = by_length_.at(k);
    if (!longer.empty() && (!lowest || *longer.begin() < *lowest)) lowest = *longer.begin();
  }
  if (!lowest) return std::nullopt;
  const AddressRange whole{*lowest, ranges_.at(*lowest)};
  erase(whole);
  insert({whole.begin + bytes, whole.bytes - bytes});
  return whole.begin;
}

AddressRange FreeRanges::ending_at(std::uintptr_t address) const {
  auto at = ranges_.lower_bound(address);
  if (at == ranges_.begin()) return {address, 0};
  --at;
  return at->first + at->second == address ? AddressRange{at->first, at->second} : AddressRange{address, 0};
}

AddressRange FreeRanges::highest() const { return {ranges_.rbegin()->first, ranges_.rbegin()->second}; }

}  // namespace lockstep

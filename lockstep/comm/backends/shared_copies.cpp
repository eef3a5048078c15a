#include "lockstep/comm/backends/shared_copies.h"

#include <cstring>

namespace lockstep::shared {

void Broadcast::stage() {
  if (is_root()) stage_copy(request_.input, bytes_of(call_.count));
}

bool Broadcast::move(std::size_t) {
  if (is_root()) return true;
  if (!has_posted(call_.root)) return false;
  const std::size_t bytes = bytes_of(call_.count);
  if (bytes > 0) std::memcpy(request_.output, block_of(call_.root, bytes), bytes);
  return true;
}

void Scatter::stage() {
  if (is_root()) stage_parts(request_.inputs);
}

bool Scatter::move(std::size_t) {
  if (copied_) return true;
  if (!has_posted(call_.root)) return false;
  const std::size_t bytes = bytes_of(call_.count);
  const std::byte* part = part_of(call_.root, bytes);
  if (part == nullptr) return false;
  if (bytes > 0) std::memcpy(request_.output, part, bytes);
  copied_ = true;
  return true;
}

FromEveryRank::FromEveryRank(std::shared_ptr<SharedEngine> engine, Request request, std::uint64_t sequence)
    : CollectiveOperation(std::move(engine), std::move(request), sequence),
      copied_(static_cast<std::size_t>(engine_->size())) {}

bool FromEveryRank::move(std::size_t) {
  bool all = true;
  for (int r = 0; r < engine_->size(); ++r) {
    const auto at = static_cast<std::size_t>(r);
    if (copied_[at]) continue;
    if (!has_posted(r)) {
      all = false;
      continue;
    }
    const std::byte* from = source(r);
    if (from == nullptr) return false;
    const auto& output = request_.outputs[at];
    if (!output.empty()) std::memcpy(output.data(), from, output.size());
    copied_[at] = true;
  }
  return all;
}

void Gather::stage() { stage_copy(request_.input, bytes_of(call_.count)); }

void Gather::check_sizes(int rank, const Call& theirs) {
  if (!receives()) return;
  const std::size_t expected = request_.outputs[static_cast<std::size_t>(rank)].size();
  if (bytes_of(theirs.count) != expected) size_mismatch(rank, expected, bytes_of(theirs.count));
}

const std::byte* Gather::source(int rank) {
  return block_of(rank, request_.outputs[static_cast<std::size_t>(rank)].size());
}

const std::byte* AllToAll::source(int rank) {
  return part_of(rank, request_.outputs[static_cast<std::size_t>(rank)].size());
}

}  // namespace lockstep::shared

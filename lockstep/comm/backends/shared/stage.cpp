#include "lockstep/comm/backends/shared/stage.h"

#include <algorithm>
#include <utility>

namespace lockstep::shared {

std::size_t Stage::take(std::size_t bytes) {
  // Blocks of the right size are reused, so that a training loop stages its tensors in the same blocks, which
  // are in the cache.
  const std::size_t wasteful = std::max<std::size_t>(4 * bytes, std::size_t{64} << 10U);
  const auto again = std::find_if(retired_.begin(), retired_.end(), [&](const Retired& block) {
    return block.destination < 0 && block.bytes >= bytes && block.bytes <= wasteful &&
           sequencer_.all_finished(block.number);
  });
  if (again == retired_.end()) {
    reap();
    return arena_.allocate(bytes);
  }
  const std::size_t offset = again->offset;
  retired_.erase(again);
  return offset;
}

std::optional<std::size_t> Stage::take_window(std::size_t bytes) {
  if (window_.is_taken) return std::nullopt;
  if (bytes > window_.bytes) {
    retire_window();
    window_.offset = arena_.allocate(bytes);
    window_.bytes = bytes;
  }
  window_.is_taken = true;
  return window_.offset;
}

RetiredBlocks Stage::leave() {
  retire_window();
  return std::exchange(retired_, {});
}

void Stage::retire_window() {
  if (window_.bytes > 0) retire(sequencer_.last(), window_.offset, window_.bytes);
  window_.bytes = 0;
}

void Stage::reap() { free_finished(retired_, arena_, control_, rank_, size_); }

}  // namespace lockstep::shared

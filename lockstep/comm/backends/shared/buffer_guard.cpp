#include "lockstep/comm/backends/shared/buffer_guard.h"

#include <algorithm>

namespace lockstep::shared {

void BufferGuard::watch(const void* data, std::size_t bytes) {
  data_ = static_cast<const std::byte*>(data);
  before_.assign(data_, data_ + bytes);
}

std::optional<std::size_t> BufferGuard::first_change() const {
  const auto changed = std::mismatch(before_.begin(), before_.end(), data_).first;
  if (changed == before_.end()) return std::nullopt;
  return static_cast<std::size_t>(changed - before_.begin());
}

}  // namespace lockstep::shared

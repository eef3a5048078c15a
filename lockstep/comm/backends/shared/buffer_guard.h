// BufferGuard: with LOCKSTEP_DEBUG, notices that a buffer of an asynchronous call is written while the
// operation is in flight.
//
//   guard.watch(data, bytes);
//   ...
//   if (const auto byte = guard.first_change()) throw InvalidArgument(...);
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace lockstep::shared {

class BufferGuard {
 public:
  void watch(const void* data, std::size_t bytes);
  bool is_watching() const { return !before_.empty(); }
  std::size_t bytes() const { return before_.size(); }
  // Index of the first byte that has changed.
  std::optional<std::size_t> first_change() const;
  // Called before the library writes to the buffer itself.
  void end() { before_.clear(); }

 private:
  std::vector<std::byte> before_;
  const std::byte* data_ = nullptr;
};

}  // namespace lockstep::shared

#include "lockstep/comm/backends/segment/arena.h"

#include <cerrno>

#include "lockstep/base/error.h"
#include "lockstep/base/round_up.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

constexpr std::size_t ARENA_ALIGNMENT = 128;
constexpr std::size_t RESERVE_STEP = std::size_t{2} << 20U;  // a huge page

}  // namespace

Arena::Arena(std::shared_ptr<SharedMemory> memory, std::string bound)
    : memory_(std::move(memory)), bound_(std::move(bound)) {
  free_[0] = memory_->size();
}

std::size_t Arena::allocate(std::size_t bytes) {
  const std::size_t size = round_up(std::max(bytes, ARENA_ALIGNMENT), ARENA_ALIGNMENT);
  const std::lock_guard lock(mutex_);
  for (auto block = free_.begin(); block != free_.end() && size >= bytes; ++block) {
    if (block->second < size) continue;
    const auto [offset, available] = *block;
    const std::size_t end = std::min(round_up(offset + size, RESERVE_STEP), memory_->size());
    if (end > reserved_) {
      memory_->reserve(reserved_, end - reserved_);
      reserved_ = end;
    }
    free_.erase(block);
    if (available > size) free_[offset + size] = available - size;
    allocated_[offset] = {size};
    return offset;
  }
  throw SystemError(str("shared memory: no room for ", bytes, " bytes in a segment of ", memory_->size(),
                        " bytes", bound_, "; fewer or smaller buckets and messages in flight are needed"),
                    ENOMEM);
}

void Arena::free(std::size_t offset) {
  const std::lock_guard lock(mutex_);
  const auto block = allocated_.find(offset);
  if (block == allocated_.end()) throw InternalError(str("arena: offset ", offset, " is not allocated"));
  if (!block->second.condemned) add_free(offset, block->second.bytes);
  allocated_.erase(block);
}

void Arena::condemn(std::size_t offset) {
  const std::lock_guard lock(mutex_);
  auto block = allocated_.upper_bound(offset);
  if (block == allocated_.begin()) return;
  --block;
  if (offset - block->first < block->second.bytes) block->second.condemned = true;
}

std::size_t Arena::reserved_bytes() const {
  const std::lock_guard lock(mutex_);
  return reserved_;
}

std::size_t Arena::allocated_blocks() const {
  const std::lock_guard lock(mutex_);
  return allocated_.size();
}

void Arena::add_free(std::size_t offset, std::size_t bytes) {
  auto next = free_.upper_bound(offset);
  if (next != free_.end() && offset + bytes == next->first) {
    bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += bytes;
      return;
    }
  }
  free_[offset] = bytes;
}

bool Arena::contains(const void* address, std::size_t bytes) const {
  const auto* first = static_cast<const std::byte*>(address);
  return first >= memory_->data() && first < memory_->data() + memory_->size() &&
         bytes <= static_cast<std::size_t>(memory_->data() + memory_->size() - first);
}

std::size_t Arena::offset_of(const void* address) const {
  return static_cast<std::size_t>(static_cast<const std::byte*>(address) - memory_->data());
}

}  // namespace lockstep

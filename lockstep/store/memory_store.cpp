#include "lockstep/store/memory_store.h"

#include <algorithm>

#include "lockstep/base/running_clock.h"

namespace lockstep {

void MemoryStore::set(const std::string& key, const std::string& value) {
  check_store_text(key, value);
  const std::lock_guard lock(mutex_);
  table_[key] = value;
  changed_.notify_all();
}

std::optional<std::string> MemoryStore::find(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto at = table_.find(key);
  return at == table_.end() ? std::nullopt : std::optional(at->second);
}

long MemoryStore::add(const std::string& key, long amount) {
  check_store_text(key);
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
  return table_add(table_, key, amount);
}

std::string MemoryStore::compare_set(const std::string& key, const std::string& expected,
                                     const std::string& desired) {
  check_store_text(key, desired);
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
  return table_compare_set(table_, key, expected, desired);
}

bool MemoryStore::delete_key(const std::string& key) {
  const std::lock_guard lock(mutex_);
  return table_.erase(key) > 0;
}

std::size_t MemoryStore::num_keys() {
  const std::lock_guard lock(mutex_);
  return table_.size();
}

// If another thread sets a key between find() and this wait, the change is noticed 20 ms late at most. That
// is acceptable for the few keys at start-up.
void MemoryStore::wait_for_change(std::chrono::milliseconds at_most) {
  std::unique_lock lock(mutex_);
  const auto span = std::min(at_most, std::chrono::milliseconds(20));
  const Nap nap(span);
  changed_.wait_for(lock, span);
}

}  // namespace lockstep

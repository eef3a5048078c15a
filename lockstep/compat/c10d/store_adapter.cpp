#include "lockstep/compat/c10d/store_adapter.h"

#include <algorithm>
#include <chrono>

#include "lockstep/base/running_clock.h"

namespace lockstep::compat::torch_backend {
namespace {

constexpr std::chrono::microseconds FIRST_LOOK(200);
constexpr std::chrono::microseconds LAST_LOOK(20000);

}  // namespace

void StoreAdapter::set(const std::string& key, const std::string& value) {
  store_->set(prefix_ + key, value);
}

std::optional<std::string> StoreAdapter::find(const std::string& key) {
  const std::string name = prefix_ + key;
  if (!store_->check({name})) return std::nullopt;
  return store_->get_to_str(name);
}

long StoreAdapter::add(const std::string& key, long amount) { return store_->add(prefix_ + key, amount); }

std::string StoreAdapter::compare_set(const std::string& key, const std::string& expected,
                                      const std::string& desired) {
  return store_->compareSet(prefix_ + key, expected, desired);
}

bool StoreAdapter::delete_key(const std::string& key) { return store_->deleteKey(prefix_ + key); }

std::size_t StoreAdapter::num_keys() { return static_cast<std::size_t>(store_->getNumKeys()); }

std::optional<StoreEntry> StoreAdapter::first_of(const std::vector<std::string>& keys, Deadline deadline) {
  std::chrono::nanoseconds look = FIRST_LOOK;
  while (true) {
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (auto value = find(keys[i])) return StoreEntry{i, std::move(*value)};
    }
    if (deadline.expired()) return std::nullopt;
    nap(std::min<std::chrono::nanoseconds>(look, deadline.remaining()));
    look = std::min<std::chrono::nanoseconds>(2 * look, LAST_LOOK);
  }
}

}  // namespace lockstep::compat::torch_backend

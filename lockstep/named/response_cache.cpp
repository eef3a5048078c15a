#include "lockstep/named/response_cache.h"

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep::named {

const Request& Agreement::any() const {
  for (const auto& request : requests) {
    if (request != nullptr) return *request;
  }
  throw InternalError("named operations: an agreement without a request");
}

std::string ResponseCache::key_of(const Request& request) {
  std::string key = std::to_string(request.process_set);
  key += '/';
  key += request.name;
  return key;
}

std::optional<std::size_t> ResponseCache::find(std::size_t place, const Request& request) const {
  const auto found = by_name_.find(key_of(request));
  if (found == by_name_.end()) return std::nullopt;
  const auto& before = at(found->second).requests.at(place);
  if (before == nullptr || !(*before == request)) return std::nullopt;
  return found->second;
}

// Linear, and only called for a name that is new to a full cache.
std::size_t ResponseCache::free_slot() {
  if (slots_.size() < capacity_) {
    slots_.emplace_back();
    return slots_.size() - 1;
  }
  const auto oldest = std::min_element(slots_.begin(), slots_.end(),
                                       [](const Slot& a, const Slot& b) { return a.used < b.used; });
  if (oldest->agreement != nullptr) by_name_.erase(key_of(oldest->agreement->any()));
  return static_cast<std::size_t>(oldest - slots_.begin());
}

void ResponseCache::put(std::shared_ptr<const Agreement> agreement) {
  if (capacity_ == 0) return;
  const std::string key = key_of(agreement->any());
  const auto found = by_name_.find(key);
  const std::size_t slot = found != by_name_.end() ? found->second : free_slot();
  slots_[slot] = {std::move(agreement), ++uses_};
  by_name_[key] = slot;
}

void ResponseCache::forget_process_set(int id) {
  for (Slot& slot : slots_) {
    if (slot.agreement == nullptr || slot.agreement->any().process_set != id) continue;
    by_name_.erase(key_of(slot.agreement->any()));
    slot = {};
  }
}

}  // namespace lockstep::named

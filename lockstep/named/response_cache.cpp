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

std::optional<std::size_t> ResponseCache::find(std::size_t place, const Request& request) const {
  const auto found = by_name_.find(request);
  if (found == by_name_.end()) return std::nullopt;
  const auto& before = at(found->second)->requests.at(place);
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
  if (oldest->agreement != nullptr) by_name_.erase(by_name_.find(oldest->agreement->any()));
  return static_cast<std::size_t>(oldest - slots_.begin());
}

void ResponseCache::put(std::shared_ptr<const Agreement> agreement, std::optional<std::size_t> slot) {
  if (capacity_ == 0) return;
  if (slot && slots_[*slot].agreement == agreement) {
    slots_[*slot].used = ++uses_;
    return;
  }
  const Request& request = agreement->any();
  const auto found = by_name_.find(request);
  const std::size_t place = found != by_name_.end() ? found->second : free_slot();
  if (found == by_name_.end()) by_name_.emplace(NameKey{request.process_set, request.name}, place);
  slots_[place] = {std::move(agreement), ++uses_};
}

void ResponseCache::forget_process_set(int id) {
  for (Slot& slot : slots_) {
    if (slot.agreement == nullptr || slot.agreement->any().process_set != id) continue;
    by_name_.erase(by_name_.find(slot.agreement->any()));
    slot = {};
  }
}

}  // namespace lockstep::named

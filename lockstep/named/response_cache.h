// ResponseCache: names that all ranks agreed about, by slot, so that the next announcement is one bit.
//
//   ResponseCache cache(1024);
//   cache.put(agreement);
//   if (const auto slot = cache.find(place_in_set, request)) ...   // the same request as before
//   cache.at(*slot)->requests[place_in_set];
//
// put() replaces a name that is there. When the cache is full, the least recently put name goes. Every rank
// puts the same names in the same order, so slots are equal everywhere.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "lockstep/named/by_name.h"
#include "lockstep/named/request.h"

namespace lockstep::named {

// What the ranks of a process set gave for one name, by place in the set. Null: the rank has joined.
struct Agreement {
  std::vector<std::shared_ptr<const Request>> requests;
  const Request& any() const;  // of the first rank that gave one
};

class ResponseCache {
 public:
  explicit ResponseCache(std::size_t capacity) : capacity_(capacity) {}

  std::size_t size() const { return slots_.size(); }
  const std::shared_ptr<const Agreement>& at(std::size_t slot) const { return slots_.at(slot).agreement; }
  std::optional<std::size_t> find(std::size_t place, const Request& request) const;
  // The agreement is still there, so what was found before would be found again.
  bool holds(const CachedAgreement& found) const {
    return found.agreement != nullptr && slots_[found.slot].agreement == found.agreement;
  }
  // `slot`: where the agreement was found, if it was. The name is not looked up again if it is still there.
  void put(std::shared_ptr<const Agreement> agreement, std::optional<std::size_t> slot = std::nullopt);
  void forget_process_set(int id);

 private:
  struct Slot {
    std::shared_ptr<const Agreement> agreement;  // null: free
    std::uint64_t used = 0;
  };
  std::size_t free_slot();

  std::size_t capacity_;
  std::uint64_t uses_ = 0;
  std::vector<Slot> slots_;
  ByName<std::size_t> by_name_;
};

}  // namespace lockstep::named

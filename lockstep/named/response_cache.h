// ResponseCache: names that all ranks agreed about, by slot, so that the next announcement is one bit.
//
//   ResponseCache cache(1024);
//   cache.put(agreement);
//   if (const auto slot = cache.find(place_in_set, request)) ...   // the same request as before
//   cache.at(*slot).requests[place_in_set];
//
// put() replaces a name that is there. When the cache is full, the least recently put name goes. Every rank
// puts the same names in the same order, so slots are equal everywhere.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

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
  const Agreement& at(std::size_t slot) const { return *slots_.at(slot).agreement; }
  std::optional<std::size_t> find(std::size_t place, const Request& request) const;
  void put(std::shared_ptr<const Agreement> agreement);
  void forget_process_set(int id);

 private:
  struct Slot {
    std::shared_ptr<const Agreement> agreement;  // null: free
    std::uint64_t used = 0;
  };
  static std::string key_of(const Request& request);
  std::size_t free_slot();

  std::size_t capacity_;
  std::uint64_t uses_ = 0;
  std::vector<Slot> slots_;
  std::unordered_map<std::string, std::size_t> by_name_;
};

}  // namespace lockstep::named

// ByName: a table whose keys are names within their process sets. A request is looked up as it is, without a
// copy of its name.
//
//   ByName<std::size_t> slots;
//   slots[{request.process_set, request.name}] = 7;
//   const auto found = slots.find(request);
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "lockstep/named/request.h"

namespace lockstep::named {

struct NameKey {
  int process_set;
  std::string name;
};

inline std::size_t hash_of_name(int process_set, std::string_view name) {
  return std::hash<std::string_view>()(name) + static_cast<std::size_t>(process_set);
}

struct NameHash {
  using is_transparent = void;
  std::size_t operator()(const NameKey& key) const { return hash_of_name(key.process_set, key.name); }
  std::size_t operator()(const Request& request) const {
    return hash_of_name(request.process_set, request.name);
  }
};

struct SameName {
  using is_transparent = void;
  template <typename A, typename B> bool operator()(const A& a, const B& b) const {
    return a.process_set == b.process_set && a.name == b.name;
  }
};

template <typename Value> using ByName = std::unordered_map<NameKey, Value, NameHash, SameName>;

}  // namespace lockstep::named

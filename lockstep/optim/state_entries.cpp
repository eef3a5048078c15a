#include "lockstep/optim/state_entries.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::optim {
namespace {

[[noreturn]] void refuse_entry(const std::string& name) {
  throw InvalidArgument(lockstep::str("load_state_dict: \"", printable(name),
                                      "\" is not an entry of an optimiser's state dict (state.I.NAME or ",
                                      "param_groups.G.NAME)"));
}

}  // namespace

StateEntry entry_of(const std::string& name) {
  const std::size_t first = name.find('.');
  const std::size_t last = name.rfind('.');
  if (first == last) refuse_entry(name);
  const std::string_view kind = std::string_view(name).substr(0, first);
  const bool is_option = kind == "param_groups";
  if (!is_option && kind != "state") refuse_entry(name);
  return {.is_option = is_option,
          .owner = name.substr(first + 1, last - first - 1),
          .key = name.substr(last + 1)};
}

std::size_t number_of_owner(const StateEntry& entry, const std::string& name) {
  std::size_t number = 0;
  const char* const end = entry.owner.data() + entry.owner.size();
  const auto [rest, error] = std::from_chars(entry.owner.data(), end, number);
  if (error != std::errc() || rest != end) refuse_entry(name);
  return number;
}

bool is_by_number(const NamedTensors& entries) {
  return std::any_of(entries.begin(), entries.end(), [](const auto& entry) {
    return entry.first.starts_with("param_groups.") && entry.first.ends_with(".params");
  });
}

}  // namespace lockstep::optim

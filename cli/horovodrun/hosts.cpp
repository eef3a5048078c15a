#include "cli/horovodrun/hosts.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <sstream>

#include "cli/arguments.h"
#include "lockstep/base/str.h"

namespace lockstep::cli {
namespace {

constexpr int MOST_ON_A_HOST = 4096;

// Letters, digits, '_', '.' and '-': no name can be an option or a part of a shell's line.
bool is_host_name(const std::string& name) {
  return !name.empty() && name[0] != '-' && std::all_of(name.begin(), name.end(), [](unsigned char letter) {
    return std::isalnum(letter) != 0 || letter == '_' || letter == '.' || letter == '-';
  });
}

int slots_in(const std::string& text) {
  int slots = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), slots);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  return is_number && slots >= 1 && slots <= MOST_ON_A_HOST ? slots : 0;
}

}  // namespace

std::vector<Host> parse_hosts(const std::string& text, const std::string& option) {
  std::vector<Host> hosts;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const auto colon = part.find(':');
    const std::string name = part.substr(0, colon);
    const int slots = colon == std::string::npos ? 0 : slots_in(part.substr(colon + 1));
    if (!is_host_name(name) || slots == 0)
      throw UsageError(
          str(option, ": ", in_quotes(part), " is not HOST:SLOTS, with SLOTS from 1 to ", MOST_ON_A_HOST));
    if (std::any_of(hosts.begin(), hosts.end(), [&](const Host& host) { return host.name == name; }))
      throw UsageError(str(option, ": the host ", in_quotes(name), " is there twice"));
    hosts.push_back({name, slots_below(slots)});
  }
  if (hosts.empty()) throw UsageError(str(option, " names no host"));
  return hosts;
}

std::vector<Host> first_slots(const std::vector<Host>& hosts, int ranks) {
  std::vector<Host> first;
  int left = ranks;
  for (const Host& host : hosts) {
    const int here = std::min(left, static_cast<int>(host.slots.size()));
    if (here > 0) first.push_back({host.name, slots_below(here)});
    left -= here;
  }
  if (left > 0) throw UsageError(str("-np is ", ranks, ", but the hosts have ", ranks - left, " slots"));
  return first;
}

}  // namespace lockstep::cli

#include "cli/deepspeed/hostfile.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <sstream>

#include "cli/arguments.h"
#include "lockstep/base/nearest.h"
#include "lockstep/base/str.h"

namespace lockstep::cli {
namespace {

constexpr int MOST_SLOTS = 4096;

std::optional<int> number_in(const std::string& text, int least) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > MOST_SLOTS)
    return std::nullopt;
  return value;
}

std::vector<std::string> split_at(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::size_t from = 0;
  while (true) {
    const std::size_t to = text.find(separator, from);
    parts.push_back(text.substr(from, to == std::string::npos ? to : to - from));
    if (to == std::string::npos) return parts;
    from = to + 1;
  }
}

// One part of a filter: a host, and the slots that it names; none: all.
struct Choice {
  std::string host;
  std::vector<int> slots;
};

const Host& host_of(const std::vector<Host>& hosts, const std::string& name, const std::string& filter) {
  std::vector<std::string> names;
  for (const Host& host : hosts) {
    if (host.name == name) return host;
    names.push_back(host.name);
  }
  const std::string close = nearest(name, names);
  throw UsageError(str(filter, ": the hostfile has no host ", in_quotes(name),
                       close.empty() ? "" : str("; did you mean ", close, "?")));
}

std::vector<Choice> choices_of(const std::vector<Host>& hosts, const std::string& text,
                               const std::string& filter) {
  std::vector<Choice> choices;
  for (const std::string& part : split_at(text, '@')) {
    const std::size_t colon = part.find(':');
    Choice choice{.host = part.substr(0, colon), .slots = {}};
    const Host& host = host_of(hosts, choice.host, filter);
    if (colon != std::string::npos) {
      for (const std::string& word : split_at(part.substr(colon + 1), ',')) {
        const auto slot = number_in(word, 0);
        if (!slot || std::find(host.slots.begin(), host.slots.end(), *slot) == host.slots.end())
          throw UsageError(str(filter, ": ", printable(choice.host), " has no slot ", in_quotes(word),
                               " in the hostfile"));
        choice.slots.push_back(*slot);
      }
    }
    choices.push_back(std::move(choice));
  }
  return choices;
}

// Whether the choices name that slot of the host.
bool names_slot(const std::vector<Choice>& choices, const std::string& host, int slot) {
  return std::any_of(choices.begin(), choices.end(), [&](const Choice& choice) {
    return choice.host == host && (choice.slots.empty() || std::find(choice.slots.begin(), choice.slots.end(),
                                                                     slot) != choice.slots.end());
  });
}

}  // namespace

std::vector<int> slots_below(int count) {
  std::vector<int> slots(static_cast<std::size_t>(count));
  std::iota(slots.begin(), slots.end(), 0);
  return slots;
}

std::vector<Host> parse_hostfile(const std::string& text, const std::string& file) {
  std::vector<Host> hosts;
  int number = 0;
  for (const std::string& line : split_at(text, '\n')) {
    ++number;
    std::istringstream words(line.substr(0, line.find('#')));
    std::string name, slots, more;
    if (!(words >> name)) continue;
    words >> slots >> more;
    constexpr std::string_view PREFIX = "slots=";
    const auto count = slots.starts_with(PREFIX) ? number_in(slots.substr(PREFIX.size()), 1) : std::nullopt;
    if (!count || !more.empty())
      throw UsageError(str(printable(file), ", line ", number, ": ", in_quotes(line),
                           " is not HOST slots=N, with N from 1 to ", MOST_SLOTS));
    if (std::any_of(hosts.begin(), hosts.end(), [&](const Host& host) { return host.name == name; }))
      throw UsageError(
          str(printable(file), ", line ", number, ": the host ", in_quotes(name), " is there twice"));
    hosts.push_back({name, slots_below(*count)});
  }
  if (hosts.empty()) throw UsageError(printable(file) + " names no host");
  return hosts;
}

std::vector<Host> filter_hosts(const std::vector<Host>& hosts, const std::string& include,
                               const std::string& exclude) {
  if (include.empty() && exclude.empty()) return hosts;
  if (!include.empty() && !exclude.empty()) throw UsageError("--include and --exclude are one too many");
  const bool includes = !include.empty();
  const std::string filter = includes ? "--include" : "--exclude";
  const auto choices = choices_of(hosts, includes ? include : exclude, filter);
  std::vector<Host> left;
  for (const Host& host : hosts) {
    Host kept{host.name, {}};
    for (const int slot : host.slots) {
      if (names_slot(choices, host.name, slot) == includes) kept.slots.push_back(slot);
    }
    if (!kept.slots.empty()) left.push_back(std::move(kept));
  }
  if (left.empty())
    throw UsageError(str(filter, " ", printable(includes ? include : exclude), " leaves no slot"));
  return left;
}

std::vector<Host> first_hosts(const std::vector<Host>& hosts, std::optional<int> nodes,
                              std::optional<int> slots) {
  if (nodes && *nodes > static_cast<int>(hosts.size()))
    throw UsageError(str("--num_nodes is ", *nodes, ", but there are ", hosts.size(), " hosts"));
  std::vector<Host> first(
      hosts.begin(),
      hosts.begin() + static_cast<std::ptrdiff_t>(nodes ? static_cast<std::size_t>(*nodes) : hosts.size()));
  for (Host& host : first) {
    if (slots) host.slots = slots_below(*slots);
  }
  return first;
}

}  // namespace lockstep::cli

#include "lockstep/comm/backends/segment/paths.h"

#include <charconv>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/backends/segment/layout.h"

namespace lockstep::shared {
namespace {

constexpr std::array<std::string_view, PATH_COUNT> NAMES = {"inline", "one_shot", "two_shot", "window",
                                                            "staged"};

[[noreturn]] void refuse_table(const std::string& text, std::string_view why) {
  throw InvalidArgument(str("environment: LOCKSTEP_PATHS=\"", printable(text), "\": ", why,
                            "; it must look like ", SHIPPED_PATHS,
                            " or name one of inline, one_shot, two_shot, "
                            "window, staged"));
}

Path parse_path(std::string_view name, const std::string& text) {
  for (std::size_t i = 0; i < NAMES.size(); ++i) {
    if (NAMES[i] == name) return static_cast<Path>(i);
  }
  refuse_table(text, "there is no such way");
}

std::uint64_t parse_bytes(std::string_view word, const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  const std::string_view unit(end, static_cast<std::size_t>(word.data() + word.size() - end));
  const unsigned shift = unit == "K" ? 10 : unit == "M" ? 20 : 0;
  if (error != std::errc() || (shift == 0 && !unit.empty()) || value > (std::uint64_t{1} << 40U))
    refuse_table(text, "a size is a number, or one with K or M");
  return value << shift;
}

}  // namespace

std::string_view name_of(Path path) { return NAMES.at(static_cast<std::size_t>(path)); }

Path PathTable::path_of(std::size_t bytes) const {
  for (const Entry& entry : entries) {
    if (entry.path == Path::INLINE && bytes > PostLine::ROOM) continue;
    if (bytes <= entry.up_to) return entry.path;
  }
  return Path::STAGED;
}

PathTable parse_paths(const std::string& text) {
  PathTable table;
  std::string_view rest = text;
  std::size_t count = 0;
  for (bool more = true; more; ++count) {
    const auto comma = rest.find(',');
    const std::string_view word = rest.substr(0, comma);
    more = comma != std::string_view::npos;
    if (more) rest.remove_prefix(comma + 1);
    if (count == table.entries.size()) refuse_table(text, "there are too many");
    auto& entry = table.entries[count];
    const auto colon = word.find(':');
    entry.path = parse_path(word.substr(0, colon), text);
    if (colon != std::string_view::npos) entry.up_to = parse_bytes(word.substr(colon + 1), text);
    if (more != (colon != std::string_view::npos)) refuse_table(text, "all but the last have a size");
    if (count > 0 && entry.up_to <= table.entries[count - 1].up_to) refuse_table(text, "sizes must ascend");
  }
  return table;
}

std::string describe(const PathTable& table) {
  std::string text;
  for (const auto& entry : table.entries) {
    text += str(text.empty() ? "" : ",", name_of(entry.path));
    if (entry.up_to == PathTable::NO_LIMIT) break;
    text += str(":", entry.up_to);
  }
  return text;
}

PathTable path_table() { return parse_paths(env("LOCKSTEP_PATHS").value_or(SHIPPED_PATHS)); }

}  // namespace lockstep::shared

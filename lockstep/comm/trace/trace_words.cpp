// The words of an analysis.
#include <array>
#include <cctype>
#include <cstdio>

#include "lockstep/base/str.h"
#include "lockstep/comm/trace/group_findings.h"

namespace lockstep::trace {

std::string name_of(const RankTrace& process) {
  return str("pid ", process.pid, process.program.empty() ? "" : ", " + process.program);
}

std::string describe(const TraceRecord& record) {
  const Call& call = record.call;
  if (is_message(call.verb)) {
    const std::string peer = call.root == ANY_SOURCE ? "any rank" : str("rank ", call.root);
    return str(name_of(call.verb), " (", name_of(call.dtype), "[", call.count, "], ",
               call.verb == Verb::SEND ? "to " : "from ", peer,
               record.tag < 0 ? "" : str(", tag ", record.tag), ")", record.tag < 0 ? " " : "",
               record.tag < 0 ? words_of(call.purpose) : "");
  }
  const std::string name(name_of(call.verb));
  const std::string details = lockstep::describe(call).substr(name.size());
  return str(name, " #", record.sequence, details == "()" ? "" : " " + details);
}

std::string for_how_long(std::int64_t nanoseconds) {
  std::array<char, 32> text{};
  const double seconds = static_cast<double>(nanoseconds) / 1e9;
  if (seconds >= 0.9995) {
    std::snprintf(text.data(), text.size(), "%.1f s", seconds);
  } else if (seconds >= 0.001) {
    std::snprintf(text.data(), text.size(), "%.0f ms", seconds * 1e3);
  } else {
    return "less than 1 ms";
  }
  return text.data();
}

std::string list_of(const std::vector<int>& ranks) {
  constexpr std::size_t SHOWN = 8;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  const std::size_t shown = ranks.size() > SHOWN + 1 ? SHOWN : ranks.size();
  for (std::size_t i = 0; i < shown; ++i) {
    const bool last = i + 1 == ranks.size();
    text += str(i == 0 ? "" : (last ? " and " : ", "), ranks[i]);
  }
  if (shown < ranks.size()) text += str(" and ", ranks.size() - shown, " others");
  return text;
}

std::string upper_first(std::string text) {
  if (!text.empty()) text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text;
}

}  // namespace lockstep::trace

#include "cli/streams.h"

#include <charconv>
#include <string_view>

#include "cli/arguments.h"
#include "lockstep/base/str.h"

namespace lockstep::cli {
namespace {

[[noreturn]] void refuse(const char* option, const std::string& text) {
  throw UsageError(
      str(option,
          " must be 0, 1, 2 or 3 (nothing, standard output, standard error, both), or a list by local rank "
          "such as 0:3,1:1, not \"",
          printable(text), "\""));
}

int number(std::string_view text, int maximum, const char* option, const std::string& whole) {
  int value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0 || value > maximum)
    refuse(option, whole);
  return value;
}

std::vector<int> by_rank(const char* option, const std::string& text, int ranks) {
  if (text.empty()) return std::vector<int>(static_cast<std::size_t>(ranks), 0);
  if (text.find(':') == std::string::npos) {
    return std::vector<int>(static_cast<std::size_t>(ranks), number(text, StreamChoice::BOTH, option, text));
  }
  std::vector<int> values(static_cast<std::size_t>(ranks), 0);
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(item.size() < rest.size() ? item.size() + 1 : item.size());
    const std::size_t colon = item.find(':');
    if (colon == std::string_view::npos) refuse(option, text);
    const int rank = number(item.substr(0, colon), ranks - 1, option, text);
    values[static_cast<std::size_t>(rank)] = number(item.substr(colon + 1), StreamChoice::BOTH, option, text);
  }
  return values;
}

}  // namespace

std::vector<StreamChoice> stream_choices(const std::string& tee, const std::string& redirects, int ranks) {
  if (tee.empty() && redirects.empty()) return {};
  const std::vector<int> teed = by_rank("--tee", tee, ranks);
  const std::vector<int> redirected = by_rank("--redirects", redirects, ranks);
  std::vector<StreamChoice> choices;
  for (std::size_t rank = 0; rank < teed.size(); ++rank) {
    choices.push_back({(StreamChoice::BOTH & ~redirected[rank]) | teed[rank], redirected[rank] | teed[rank]});
  }
  return choices;
}

}  // namespace lockstep::cli

// str(...) joins anything that can be streamed into one string: str("rank ", 3, " of ", 4). g++ 12 has no
// std::format.
#pragma once

#include <sstream>
#include <string>
#include <string_view>

#include "lockstep/base/visibility.h"

namespace LOCKSTEP_PUBLIC lockstep {

template <typename... Parts> std::string str(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

// Text that came from outside (a file name, an environment value), safe to put on one line of a terminal:
// control characters become \xNN and anything longer than `limit` characters is cut with "...".
std::string printable(std::string_view text, std::size_t limit = 200);

// The same between double quotes.
std::string in_quotes(std::string_view text, std::size_t limit = 200);

}  // namespace lockstep

#include "lockstep/base/str.h"

namespace lockstep {

std::string printable(std::string_view text, std::size_t limit) {
  constexpr char HEX[] = "0123456789abcdef";
  std::string out;
  for (const char c : text.substr(0, limit)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7f) {
      out += c;
    } else {
      out += "\\x";
      out += HEX[byte >> 4U];
      out += HEX[byte & 0xfU];
    }
  }
  if (text.size() > limit) out += "...";
  return out;
}

std::string in_quotes(std::string_view text, std::size_t limit) { return '"' + printable(text, limit) + '"'; }

}  // namespace lockstep

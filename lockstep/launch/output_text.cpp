#include "lockstep/launch/output_text.h"

#include <cstdint>

namespace lockstep {
namespace {

constexpr char ESCAPE = '\x1b';
constexpr std::string_view RESET = "\x1b[0m";
constexpr std::size_t LONGEST_SEQUENCE = 32;

// Returns the length of the escape sequence at the start of `text` if it is allowed, else 0.
std::size_t harmless_sequence(std::string_view text) {
  if (text.size() < 3 || text[0] != ESCAPE || text[1] != '[') return 0;
  if (text[2] == 'K') return 3;
  for (std::size_t i = 2; i < text.size() && i < LONGEST_SEQUENCE; ++i) {
    if (text[i] == 'm') return i + 1;
    const bool parameter = (text[i] >= '0' && text[i] <= '9') || text[i] == ';' || text[i] == ':';
    if (!parameter) return 0;
  }
  return 0;
}

// Returns the length of the UTF-8 character at the start of `text`. 0 if there is none, or if it is a C1
// control (U+0080 to U+009F). Some terminals obey those: U+009B begins a sequence just like ESC [.
std::size_t character_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t lead = byte(0);
  if (lead < 0x80) return lead >= 0x20 && lead != 0x7f ? 1 : 0;
  const std::size_t length = lead >= 0xf0 && lead <= 0xf4  ? 4
                             : lead >= 0xe0 && lead < 0xf0 ? 3
                             : lead >= 0xc2 && lead < 0xe0 ? 2
                                                           : 0;
  if (length == 0 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0U) != 0x80) return 0;
  }
  const bool overlong = (lead == 0xe0 && byte(1) < 0xa0) || (lead == 0xf0 && byte(1) < 0x90);
  const bool surrogate = lead == 0xed && byte(1) >= 0xa0;
  const bool too_large = lead == 0xf4 && byte(1) >= 0x90;
  const bool c1_control = lead == 0xc2 && byte(1) < 0xa0;
  return overlong || surrogate || too_large || c1_control ? 0 : length;
}

// The length of the printable ASCII at the beginning of `text`.
std::size_t plain_length(std::string_view text) {
  std::size_t length = 0;
  while (length < text.size() && text[length] >= ' ' && text[length] <= '~') ++length;
  return length;
}

void append_hex(std::string& out, char c) {
  constexpr char HEX[] = "0123456789abcdef";
  const auto byte = static_cast<std::uint8_t>(c);
  out += "\\x";
  out += HEX[byte >> 4U];
  out += HEX[byte & 0xfU];
}

}  // namespace

std::string safe_text(std::string_view text, std::string_view after_return) {
  std::string out;
  out.reserve(text.size());
  bool coloured = false;
  while (!text.empty()) {
    const std::size_t plain = plain_length(text);  // nearly all text
    out += text.substr(0, plain);
    text.remove_prefix(plain);
    if (text.empty()) break;
    std::size_t taken = 1;
    if (const std::size_t sequence = harmless_sequence(text); sequence > 0) {
      coloured = true;
      taken = sequence;
      out += text.substr(0, taken);
    } else if (const std::size_t length = character_length(text); length > 0) {
      taken = length;
      out += text.substr(0, taken);
    } else if (text[0] == '\t') {
      out += '\t';
    } else if (text[0] == '\r') {
      out += '\r';
      out += after_return;
    } else {
      append_hex(out, text[0]);
    }
    text.remove_prefix(taken);
  }
  if (coloured) out += RESET;
  return out;
}

std::string fit_columns(std::string_view safe, std::size_t columns) {
  std::string out;
  std::size_t used = 0;
  bool coloured = false;
  while (!safe.empty()) {
    if (const std::size_t sequence = harmless_sequence(safe); sequence > 0) {
      out += safe.substr(0, sequence);
      safe.remove_prefix(sequence);
      coloured = true;
      continue;
    }
    const std::size_t length = std::max<std::size_t>(1, character_length(safe));
    const std::size_t width = safe[0] == '\t' ? 8 : 1;
    if (used + width > columns) break;
    used += width;
    out += safe.substr(0, length);
    safe.remove_prefix(length);
  }
  if (coloured) out += RESET;
  return out;
}

}  // namespace lockstep

// text_hash: a hash of 64 bits (FNV-1a) by which equal texts are recognised. It is the same in every process.
// It does not protect against attackers.
//
//   if (text_hash(mine) != text_hash(theirs)) ...
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep {

constexpr std::uint64_t text_hash(std::string_view text) {
  std::uint64_t value = 0xcbf29ce484222325U;
  for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return value;
}

}  // namespace lockstep

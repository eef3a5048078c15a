#include "lockstep/formats/crc32c.h"

#include <array>

namespace lockstep {
namespace {

constexpr std::uint32_t CASTAGNOLI = 0x82F63B78;  // 0x1EDC6F41, its bits from the lowest

constexpr std::array<std::uint32_t, 256> make_crc32c_table() {
  std::array<std::uint32_t, 256> table = {};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    std::uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = (rest & 1U) != 0 ? (rest >> 1U) ^ CASTAGNOLI : rest >> 1U;
    table[byte] = rest;
  }
  return table;
}

constexpr std::array<std::uint32_t, 256> CRC32C_TABLE = make_crc32c_table();

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t rest = 0xFFFFFFFF;
  for (const char c : bytes)
    rest = (rest >> 8U) ^ CRC32C_TABLE[(rest ^ static_cast<unsigned char>(c)) & 0xFFU];
  return ~rest;
}

}  // namespace lockstep

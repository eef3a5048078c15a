// crc32c(): the cyclic redundancy check with Castagnoli's polynomial, which TFRecord files, iSCSI and ext4
// use.
//
//   crc32c("123456789");                    // 0xE3069283
//
// Source      RFC 3720, section 12.1 and appendix B.4: polynomial 0x11EDC6F41, bits of a byte from the
//             lowest, begun with and inverted by 0xFFFFFFFF.
// Speed       a table of 256 entries, some hundred MB/s: for records of a few hundred bytes.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep {

std::uint32_t crc32c(std::string_view bytes);

}  // namespace lockstep

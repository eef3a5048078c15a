// Reads idx files, the format of MNIST and Fashion-MNIST: a big-endian header and then unsigned bytes.
//
//   IdxArray images = read_idx("train-images-idx3-ubyte.gz", 3);   // plain or gzip
//   images.dims;                                                   // {60000, 28, 28}
//   images.bytes.size();                                           // 60000 * 28 * 28
//
//   offset 0   00 00 08 0D     D: number of dimensions; 08: unsigned bytes
//   offset 4   D sizes of four bytes each
//   then       the bytes, last dimension fastest, and nothing after them
//
// Fails       FormatError, naming the file and the defect, for anything else: another magic number, element
//             type or number of dimensions, sizes that overflow or that the file cannot hold, too few bytes,
//             bytes after the end. SystemError when the file cannot be read. Nothing is allocated on the word
//             of a header: memory grows with the bytes really read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/base/visibility.h"

namespace LOCKSTEP_PUBLIC lockstep {

struct IdxArray {
  std::vector<std::int64_t> dims;
  std::vector<std::uint8_t> bytes;
};

inline constexpr std::int64_t IDX_MAX_BYTES = std::int64_t{1} << 32;  // larger files are refused

IdxArray read_idx(const std::string& path, int dimensions);

}  // namespace lockstep

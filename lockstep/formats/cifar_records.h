// Reads the binary files of CIFAR-10 and CIFAR-100: records of one size, without a header.
//
//   CifarRecords train = read_cifar_records("data_batch_1.bin.gz", {10});      // plain or gzip
//   train.count;                                                               // 10000
//   CifarRecords fine_and_coarse = read_cifar_records("train.bin", {20, 100});
//
//   offset 0   one byte for each label (CIFAR-10: one of 10; CIFAR-100: one of 20 coarse ones, one of 100
//              fine ones)
//   then       3072 bytes: 32 rows of 32 red pixels, then green, then blue
//   and so on with the next record, to the end of the file
//
// Layout: https://www.cs.toronto.edu/~kriz/cifar.html, "Binary version".
//
// Fails       FormatError, naming the file and the defect: no records, a last record that is cut, a label out
//             of range, more than max_records. SystemError when the file cannot be read. Memory grows with
//             the bytes really read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/base/visibility.h"

namespace LOCKSTEP_PUBLIC lockstep {

struct CifarRecords {
  std::int64_t count = 0;
  std::vector<std::uint8_t> labels;  // of the first record all, then of the second, ...
  std::vector<std::uint8_t> pixels;  // count x 3 x 32 x 32
};

inline constexpr std::int64_t CIFAR_PIXELS = 3072;
inline constexpr std::int64_t CIFAR_MAX_RECORDS = 1'000'000;

// `classes`: for each label of a record how many values it has, 1 to 256.
CifarRecords read_cifar_records(const std::string& path, const std::vector<int>& classes,
                                std::int64_t max_records = CIFAR_MAX_RECORDS);

}  // namespace lockstep

// ZipReader finds the uncompressed records of a zip file, so that their bytes can be read straight from the
// file. It also reads zip files of more than 4 GiB (zip64).
//
//   const PlainFile file("model.pt");
//   const ZipReader zip(file, 0, file.size());
//   const ZipRecord* record = zip.find("model/data.pkl");      // nullptr: the archive has none
//
// The archive may be a range of a file, as the items of distributed checkpoints are.
//
// Fails       FormatError without a file name: the bytes are not a zip archive; a record is compressed or
//             encrypted, lies outside the archive, overlaps another or has the name of another. SystemError:
//             a failed read.
// Memory      in proportion to the archive's directory; no record is read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/visibility.h"
#include "lockstep/os/plain_file.h"

namespace LOCKSTEP_PUBLIC lockstep {

struct ZipRecord {
  std::string name;
  std::uint64_t offset = 0;  // of its first byte in the file
  std::uint64_t size = 0;    // as it lies in the file
  bool is_compressed = false;
};

// Throws FormatError, which says what to do, for a compressed record.
void expect_stored(const ZipRecord& record);

class ZipReader {
 public:
  ZipReader(const PlainFile& file, std::uint64_t begin, std::uint64_t size);

  const std::vector<ZipRecord>& records() const { return records_; }  // sorted by name
  const ZipRecord* find(std::string_view name) const;

 private:
  std::vector<ZipRecord> records_;
};

}  // namespace lockstep

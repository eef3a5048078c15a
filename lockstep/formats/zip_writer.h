// ZipWriter writes a zip file of uncompressed records, each at a multiple of 64 bytes, so that a reader can
// map them. The file appears whole or not at all (os/atomic_file.h).
//
//   ZipWriter zip("model.pt");
//   zip.begin("model/data/0", 4096);
//   zip.write(bytes);                       // pieces of any size, 4096 bytes in all
//   zip.commit();
//
// Files and records of more than 4 GiB have the fields of zip64.
//
// Fails       InvalidArgument: a record gets more or fewer bytes than it was begun with. SystemError: the
//             file cannot be written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/visibility.h"
#include "lockstep/os/atomic_file.h"

namespace LOCKSTEP_PUBLIC lockstep {

class ZipWriter {
 public:
  explicit ZipWriter(std::string path);

  void begin(const std::string& name, std::uint64_t size);  // ends the previous record
  void write(std::span<const std::byte> bytes);
  void commit(bool durable = true);

 private:
  struct Record {
    std::string name;
    std::uint64_t size;
    std::uint64_t offset;  // of its header
    std::uint32_t crc;
  };

  void end_record();
  void put(const std::string& text);

  std::string path_;
  std::vector<Record> records_;
  std::uint64_t position_ = 0;
  std::uint64_t missing_ = 0;  // bytes of the last record
  bool is_open_ = false;       // the last record
  AtomicFile file_;
};

}  // namespace lockstep

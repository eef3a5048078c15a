// SafetensorsWriter writes a safetensors file piece by piece: names, dtypes and shapes first, then the bytes
// in order. So a file may be larger than memory.
//
//   SafetensorsWriter writer("model.safetensors", {{"conv1.bias", "F32", {32}}, {"steps", "I64", {}}});
//   for (const SafetensorsTensor& tensor : writer.tensors()) writer.write(bytes_of(tensor.name));
//   writer.commit();                        // without it nothing happens to "model.safetensors"
//
// Order       tensors() returns it: by falling element size, then by name. So each tensor lies at a multiple
//             of its element size, and equal tensors give equal files. write() takes pieces of any size. A
//             piece may hold the end of one tensor and the start of the next.
// Whole       The file appears whole or not at all (os/atomic_file.h).
// Fails       InvalidArgument that names the file: a name that occurs twice, is not UTF-8 or is
//             "__metadata__", an unknown dtype, a shape that is negative or overflows, more bytes than the
//             tensors have, a commit before all bytes were written. SystemError: the file cannot be written.
// Threads     One writer belongs to one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/visibility.h"
#include "lockstep/formats/safetensors.h"
#include "lockstep/os/atomic_file.h"

namespace LOCKSTEP_PUBLIC lockstep {

struct SafetensorsEntry {
  std::string name;
  std::string dtype;  // in the format's words: "F32", "BF16", "I64"
  std::vector<std::int64_t> shape;
};

// Returns the bytes before the data: the header's length and the header, padded so that the data begins at a
// multiple of 64. For a program's own writers. `tensors` lie one behind the other in this order, and errors
// name `path`.
std::string safetensors_head(const std::string& path, const std::vector<SafetensorsTensor>& tensors,
                             const SafetensorsMetadata& metadata = {{"format", "pt"}});

class SafetensorsWriter {
 public:
  // Writes the header.
  SafetensorsWriter(const std::string& path, std::vector<SafetensorsEntry> tensors,
                    const SafetensorsMetadata& metadata = {{"format", "pt"}});

  // The tensors in the order in which their bytes must be written, with their byte ranges in the data.
  const std::vector<SafetensorsTensor>& tensors() const { return tensors_; }
  std::uint64_t data_size() const { return tensors_.empty() ? 0 : tensors_.back().end; }
  std::uint64_t file_size() const { return head_.size() + data_size(); }

  void write(std::span<const std::byte> bytes);
  void commit(bool durable = true);  // false: complete at any time, but a power failure may lose it

 private:
  std::string path_;
  std::vector<SafetensorsTensor> tensors_;
  std::string head_;           // the header's length and the header
  std::uint64_t written_ = 0;  // bytes of the data
  AtomicFile file_;
};

}  // namespace lockstep

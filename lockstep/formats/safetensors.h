// Reads and writes safetensors, a format of model weights. A file holds names, dtypes, shapes and bytes, and
// no code.
//
//   SafetensorsFile file("model.safetensors");
//   for (const SafetensorsTensor& tensor : file.tensors()) {
//     std::vector<std::byte> bytes(tensor.size());
//     file.read(tensor, bytes);
//   }
//   write_safetensors("copy.safetensors", {{"conv1.bias", "F32", {32}, bytes}});
//
// Offset 0       header size N, eight bytes, little-endian, at most 100,000,000
// Offset 8       N bytes of JSON, from '{', padded with spaces: {"name": {"dtype": "F32", "shape": [32],
//                "data_offsets": [begin, end]}, ..., "__metadata__": {"key": "text"}}
// Offset 8 + N   the data; every byte belongs to exactly one tensor
//
// The rules are those of the reference implementation, https://github.com/huggingface/safetensors.
//
// Fails       FormatError that names the file and the defect, for any other form: a name that occurs twice,
//             an unknown dtype, a shape that overflows (also beside a 0, where libtorch multiplies the
//             others) or does not fit its bytes, holes, overlaps, bytes that belong to no tensor, a cut file.
//             SystemError if the file cannot be read or written, or is a named pipe or a folder.
// Time        in proportion to the header: 200,000 tensors take about as long as in Python.
// Threads     Different SafetensorsFile objects are independent. One object belongs to one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/visibility.h"
#include "lockstep/os/plain_file.h"

namespace LOCKSTEP_PUBLIC lockstep {

struct SafetensorsTensor {
  std::string name;
  std::string dtype;  // in the format's words: "F32", "BF16", "I64"
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  // byte range within the data
  std::uint64_t end = 0;

  std::uint64_t size() const { return end - begin; }
};

using SafetensorsMetadata = std::map<std::string, std::string>;

struct SafetensorsHeader {
  std::vector<SafetensorsTensor> tensors;  // in the order of their bytes
  SafetensorsMetadata metadata;
};

// Bytes of one element; 0 for a dtype that is unknown or packs several elements into a byte.
std::size_t safetensors_dtype_size(std::string_view dtype);

// Checks the JSON of a file whose data has `data_size` bytes. The FormatError names no file.
SafetensorsHeader parse_safetensors_header(std::string_view json, std::uint64_t data_size);

class SafetensorsFile {
 public:
  // Reads and checks the header; the tensors' bytes stay in the file.
  explicit SafetensorsFile(std::string path);

  const std::vector<SafetensorsTensor>& tensors() const { return header_.tensors; }
  const SafetensorsMetadata& metadata() const { return header_.metadata; }
  const std::string& path() const { return file_.path(); }

  // Copies the bytes of one of tensors() into `out`, which has exactly tensor.size() bytes.
  void read(const SafetensorsTensor& tensor, std::span<std::byte> out) const;

 private:
  PlainFile file_;
  std::uint64_t data_offset_ = 0;
  SafetensorsHeader header_;
};

struct SafetensorsSource {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;  // row by row, little-endian
};

// Writes the file whole or not at all, as SafetensorsWriter does (formats/safetensors_writer.h). That class
// needs the bytes only piece by piece. Throws its errors, and InvalidArgument for bytes that do not fit the
// shape.
void write_safetensors(const std::string& path, const std::vector<SafetensorsSource>& tensors,
                       const SafetensorsMetadata& metadata = {{"format", "pt"}});

}  // namespace lockstep

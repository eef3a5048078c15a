// Writes .pt files that Python's torch.load(path, weights_only=True) reads as a dict of tensors, with
// mmap=True too.
//
//   write_pt("model.pt", {{"conv1.bias", "F32", {32}, bytes}});
//
//   PtWriter writer("large.pt", {{"weight", "BF16", {1024, 1024}}});    // bytes come piece by piece
//   writer.write(bytes);
//   writer.commit();                        // without it nothing happens to "large.pt"
//
// Dtypes      all of formats/tensor_dtypes.h.
// Order       write() takes the bytes of the storages in their order, in pieces of any size. Tensors without
//             `storages` have one each, in their order.
// Ties        tensors of one storage share its memory in Python too. They have one dtype.
// Whole       the file appears whole or not at all (os/atomic_file.h).
// Fails       InvalidArgument naming the file: a name that occurs twice or is not UTF-8, an unknown dtype, a
//             shape that overflows, a tensor outside its storage, more or fewer bytes than the storages
//             have. SystemError: the file cannot be written.
// Threads     one writer belongs to one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/visibility.h"
#include "lockstep/formats/zip_writer.h"

namespace LOCKSTEP_PUBLIC lockstep {

struct PtEntry {
  std::string name;
  std::string dtype;  // "F32", "U16", "F8_E4M3", "C128"
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides = {};  // in elements; empty: row by row
  std::size_t storage = 0;                 // its number, where `storages` are given
  std::uint64_t offset = 0;                // of its first element, in elements
};

class PtWriter {
 public:
  PtWriter(const std::string& path, std::vector<PtEntry> tensors);
  // Tensors within storages of these sizes, in bytes.
  PtWriter(const std::string& path, std::vector<PtEntry> tensors, std::vector<std::uint64_t> storages);

  const std::vector<PtEntry>& tensors() const { return tensors_; }
  void write(std::span<const std::byte> bytes);
  void commit(bool durable = true);

 private:
  void start();
  void begin_storages();

  std::string path_;
  std::vector<PtEntry> tensors_;
  std::vector<std::uint64_t> storages_;
  std::string pickle_;
  std::size_t next_ = 0;       // the next storage to begin
  std::uint64_t missing_ = 0;  // bytes that the storage before it still needs
  ZipWriter zip_;
};

struct PtTensorSource {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;  // row by row, little-endian
};

void write_pt(const std::string& path, std::span<const PtTensorSource> tensors);

}  // namespace lockstep

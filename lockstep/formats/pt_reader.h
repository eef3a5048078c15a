// PtReader reads the .pt files in which Python's torch.save wrote a state dict, or nested dicts, lists and
// tuples of tensors, numbers and texts. It runs no code of the file, and refuses every import that tensors do
// not need.
//
//   const PtReader file("model.pt");
//   for (const PtTensor& tensor : file.tensors()) {
//     std::vector<std::byte> values(size_of(tensor));    // row by row, however they lie in the file
//     file.read(tensor, values);
//   }
//
// Names       of nested values have dots: "optimizer.state.0.step" is d["optimizer"]["state"][0]["step"].
// Storages    Tensors that share memory in Python (tied weights, views) have the same storage number here.
// Scalars     values that are not tensors: numbers, texts, None, dtypes and devices by their names.
// Memory      The constructor needs memory in proportion to the pickle and the zip directory. Reading a
//             strided tensor also takes the part of its storage in which it lies.
// Fails       FormatError that names the file: the format before PyTorch 1.6, a TorchScript archive, a
//             compressed or cut record, any other kind of file. SystemError: it cannot be read.
// Threads     any number may read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/visibility.h"
#include "lockstep/formats/pickle_tensors.h"
#include "lockstep/os/plain_file.h"

namespace LOCKSTEP_PUBLIC lockstep {

class PtReader {
 public:
  explicit PtReader(const std::string& path);
  // The archive is `size` bytes of the file from `begin`.
  PtReader(std::shared_ptr<const PlainFile> file, std::uint64_t begin, std::uint64_t size);

  const std::vector<PtTensor>& tensors() const { return state_.tensors; }
  const std::vector<std::pair<std::string, PtScalar>>& scalars() const { return state_.scalars; }
  const std::vector<PickledStorage>& storages() const { return state_.storages; }
  const std::string& path() const { return file_->path(); }

  // Copies a storage's bytes into `out`, which has storages()[number].size bytes.
  void read_storage(std::size_t number, std::span<std::byte> out) const;
  // Copies the values of one of tensors() into `out`, which has size_of(tensor) bytes. Conjugates and negates
  // them if the tensor says so.
  void read(const PtTensor& tensor, std::span<std::byte> out) const;
  // The same in pieces, for tensors that are larger than memory.
  void read_pieces(const PtTensor& tensor, const std::function<void(std::span<const std::byte>)>& take) const;

 private:
  void open(std::uint64_t begin, std::uint64_t size);
  void read_at(std::size_t storage, std::uint64_t offset, std::span<std::byte> out) const;

  std::shared_ptr<const PlainFile> file_;
  PickledState state_;
  std::vector<std::uint64_t> offsets_;  // of the storages in the file
};

}  // namespace lockstep

// CheckpointReader: the tensors of one checkpoint as bytes, put together from their pieces, without libtorch.
//
//   CheckpointReader reader("runs/7/step-000000001200");
//   const std::vector<std::byte> weight = reader.read("model.fc1.weight");       // row by row, little-endian
//
// Checks      the checksum of each piece that it reads.
// Memory      one tensor, and one piece of it.
// Throws      FormatError for damage, SystemError for files that cannot be read, InvalidArgument for a name
//             that the checkpoint does not have. Each names the file or the tensor.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/visibility.h"
#include "lockstep/formats/checkpoint_index.h"
#include "lockstep/os/plain_file.h"

namespace LOCKSTEP_PUBLIC lockstep {

class CheckpointReader {
 public:
  explicit CheckpointReader(std::string checkpoint);

  const CheckpointIndex& index() const { return index_; }
  std::vector<std::byte> read(const std::string& name);

 private:
  std::vector<std::byte> read(const CheckpointPiece& piece, std::uint64_t bytes);

  std::string checkpoint_;
  CheckpointIndex index_;
  std::vector<std::unique_ptr<PlainFile>> files_;  // opened when needed
};

}  // namespace lockstep

// DcpReader reads the folders that Python's torch.distributed.checkpoint writes: ".metadata", and files of
// tensors or of their chunks. It runs no code of them.
//
//   DcpReader reader("checkpoint");
//   for (const DcpTensor& tensor : reader.tensors()) use(tensor.name, reader.read(tensor));
//
// Names       are those of the flattened state dict: "model.fc1.weight", "optim.state.fc1.weight.exp_avg".
// Skipped     Entries that are not tensors ("optim.param_groups.0.lr"), because Python pickles them whole.
//             skipped() has the names.
// Memory      the metadata, and a tensor twice.
// Fails       FormatError that names the file: metadata with other records than those of a checkpoint, chunks
//             that overlap or leave a hole, an item that is not the expected tensor, a file name that leads
//             out of the folder. SystemError: a file that cannot be read.
// Source      torch/distributed/checkpoint/metadata.py and filesystem.py of PyTorch 2.13.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/visibility.h"
#include "lockstep/os/plain_file.h"

namespace LOCKSTEP_PUBLIC lockstep {

// A box of a tensor, and the place of its item.
struct DcpChunk {
  std::vector<std::int64_t> offsets;
  std::vector<std::int64_t> sizes;
  std::string file;  // in the folder
  std::uint64_t begin = 0;
  std::uint64_t length = 0;
};

struct DcpTensor {
  std::string name;
  std::string dtype;  // formats/tensor_dtypes.h
  std::vector<std::int64_t> shape;
  std::vector<DcpChunk> chunks;
};

class DcpReader {
 public:
  explicit DcpReader(std::string folder);

  const std::vector<DcpTensor>& tensors() const { return tensors_; }  // by name
  const std::vector<std::string>& skipped() const { return skipped_; }

  // The values of one of tensors(), row by row.
  std::vector<std::byte> read(const DcpTensor& tensor);

 private:
  std::vector<std::byte> read_chunk(const DcpTensor& tensor, const DcpChunk& chunk);

  std::string folder_;
  std::vector<DcpTensor> tensors_;
  std::vector<std::string> skipped_;
  std::map<std::string, std::shared_ptr<const PlainFile>> files_;  // files that have been opened
};

// Whether the folder has the file ".metadata".
bool is_dcp_folder(const std::string& folder);

}  // namespace lockstep

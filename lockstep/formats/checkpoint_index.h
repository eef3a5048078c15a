// CheckpointIndex: the contents of a checkpoint and the places of its bytes. It is the file "checkpoint.json"
// of the checkpoint's folder. The bytes are in safetensors files beside it.
//
//   const CheckpointIndex index = parse_checkpoint_index(read_plain_file(folder + "/checkpoint.json"));
//   const CheckpointTensor& weight = index.tensors.at("model.fc1.weight");
//   for (const CheckpointPiece& piece : weight.pieces)
//     std::cout << index.files[piece.file].name << ", byte " << piece.begin << '\n';
//
//   {"lockstep_checkpoint": 1, "xxh128": "…of the text without this entry",
//    "step": 1200, "ranks": 2, "made_with": {"libtorch": "2.13.0", "cpu": "AVX512"},
//    "files": [{"name": "shard-00000-of-00002.safetensors", "bytes": 4096,
//               "header_bytes": 1024, "header_xxh128": "…"}, …],
//    "items": {"model": "module", "optimizer": "state", "epoch": "value"},
//    "tensors": {"model.fc1.weight": {"dtype": "F32", "shape": [10, 84], "pieces": [
//      {"file": 0, "key": "model.fc1.weight", "begin": 1024, "offsets": [0, 0], "sizes": [10, 84], "xxh128":
//      "…"}]}},
//    "values": {"epoch": 3}}
//
// Piece       a box of its tensor: `sizes` elements in each dimension, from `offsets` on. Its bytes lie row
//             by row from byte `begin` of its file, whose safetensors header calls it `key`. The pieces of a
//             tensor cover each of its elements once. An empty tensor has none. Two tensors may share pieces,
//             so tied weights are written once.
// Checksums   Every byte of a file is in its header or in a piece, so one of the checksums covers it.
// dtype       a name of safetensors, or "C128" and "C32" for complex128 and complex32. safetensors holds
//             their parts as F64 and F16 in one more dimension of two.
// Items       what the program added, by name, with its kind. A tensor's name is its item's name, a dot, and
//             its name in the item's state dict.
// Values      by item. If those of an item differ by rank, they are a list under "rank_values".
//
// Pure        Nothing here opens a file. parse_checkpoint_index() throws FormatError without a file name for
//             every other form: pieces that overlap, leave a hole or end outside of their file, file names
//             with a '/', a changed text (its checksum).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/visibility.h"

namespace LOCKSTEP_PUBLIC lockstep {

inline constexpr std::string_view CHECKPOINT_INDEX_NAME = "checkpoint.json";

struct CheckpointPiece {
  std::size_t file = 0;  // its number in CheckpointIndex::files
  std::string key;
  std::uint64_t begin = 0;
  std::vector<std::int64_t> offsets;
  std::vector<std::int64_t> sizes;
  std::string xxh128;  // of its bytes
};

struct CheckpointTensor {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::vector<CheckpointPiece> pieces;
};

struct CheckpointFile {
  std::string name;
  std::uint64_t bytes = 0;
  std::uint64_t header_bytes = 0;  // size of the safetensors header before the pieces
  std::string header_xxh128;
};

struct CheckpointIndex {
  CheckpointIndex();
  CheckpointIndex(const CheckpointIndex& other);
  CheckpointIndex(CheckpointIndex&&) noexcept;
  CheckpointIndex& operator=(const CheckpointIndex& other);
  CheckpointIndex& operator=(CheckpointIndex&&) noexcept;
  ~CheckpointIndex();

  std::int64_t step = 0;
  int ranks = 1;                                 // number of ranks that saved it
  std::map<std::string, std::string> made_with;  // conditions of the bits of a resumed run
  std::vector<CheckpointFile> files;
  std::map<std::string, std::string> items;
  std::map<std::string, CheckpointTensor> tensors;
  std::unique_ptr<nlohmann::json> values;       // an object
  std::unique_ptr<nlohmann::json> rank_values;  // an object of lists with one entry a rank
};

// Bytes of one element; 0 for a dtype that checkpoints do not hold.
std::size_t checkpoint_dtype_size(std::string_view dtype);

// Number of elements, and bytes, of a piece.
std::int64_t elements_of(const CheckpointPiece& piece);
std::uint64_t bytes_of(const CheckpointPiece& piece, const CheckpointTensor& tensor);

// Returns the fault of the pieces of a tensor; "" if they cover each element once.
std::string defect_of_pieces(const std::vector<std::int64_t>& shape,
                             const std::vector<CheckpointPiece>& pieces);

std::string to_text(const CheckpointIndex& index);
CheckpointIndex parse_checkpoint_index(std::string_view text);

}  // namespace lockstep

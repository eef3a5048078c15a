#include "lockstep/formats/checkpoint_reader.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <span>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/formats/checkpoint_folder.h"
#include "lockstep/formats/checksum.h"

namespace lockstep {
namespace {

// Copies a box into its place in a contiguous tensor, one run of adjacent elements after the other.
void place(const std::vector<std::byte>& box, const CheckpointPiece& piece,
           const std::vector<std::int64_t>& shape, std::size_t element, std::span<std::byte> whole) {
  // The dimensions from `inner` on are covered fully, so that the box is contiguous in them.
  std::size_t inner = shape.size();
  while (inner > 0 && piece.sizes[inner - 1] == shape[inner - 1]) --inner;
  if (inner > 0) --inner;
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  const auto product = [&](std::size_t from, std::size_t to) {
    return std::accumulate(piece.sizes.begin() + static_cast<std::ptrdiff_t>(from),
                           piece.sizes.begin() + static_cast<std::ptrdiff_t>(to), std::int64_t{1},
                           std::multiplies<>());
  };
  const std::int64_t runs = product(0, inner);
  const auto run_bytes = static_cast<std::size_t>(product(inner, shape.size())) * element;
  for (std::int64_t run = 0; run < runs; ++run) {
    std::int64_t first = 0;
    std::int64_t rest = run;
    for (std::size_t d = shape.size(); d-- > 0;) {
      const std::int64_t index = d < inner ? rest % piece.sizes[d] : 0;
      if (d < inner) rest /= piece.sizes[d];
      first += (piece.offsets[d] + index) * strides[d];
    }
    std::copy_n(box.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(run) * run_bytes),
                run_bytes,
                whole.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(first) * element));
  }
}

}  // namespace

CheckpointReader::CheckpointReader(std::string checkpoint)
    : checkpoint_(std::move(checkpoint)),
      index_(read_checkpoint_index(checkpoint_)),
      files_(index_.files.size()) {}

std::vector<std::byte> CheckpointReader::read(const std::string& name) {
  const auto found = index_.tensors.find(name);
  if (found == index_.tensors.end())
    throw InvalidArgument(str("checkpoint ", in_quotes(checkpoint_), " has no tensor ", in_quotes(name)));
  const CheckpointTensor& tensor = found->second;
  std::uint64_t bytes = 0;
  for (const CheckpointPiece& piece : tensor.pieces) bytes += bytes_of(piece, tensor);
  if (tensor.pieces.size() == 1) return read(tensor.pieces[0], bytes);
  std::vector<std::byte> whole(bytes);
  for (const CheckpointPiece& piece : tensor.pieces)
    place(read(piece, bytes_of(piece, tensor)), piece, tensor.shape, checkpoint_dtype_size(tensor.dtype),
          whole);
  return whole;
}

std::vector<std::byte> CheckpointReader::read(const CheckpointPiece& piece, std::uint64_t bytes) {
  std::unique_ptr<PlainFile>& file = files_[piece.file];
  if (!file) file = std::make_unique<PlainFile>(str(checkpoint_, '/', index_.files[piece.file].name));
  if (piece.begin + bytes > file->size())
    throw FormatError(str(in_quotes(file->path()), " ends inside ", in_quotes(piece.key)));
  std::vector<std::byte> box(bytes);
  if (file->read_at(piece.begin, box) < box.size() || checksum_of(box) != piece.xxh128)
    throw FormatError(str(in_quotes(file->path()), ": the bytes of ", in_quotes(piece.key),
                          " are not those that were written"));
  return box;
}

}  // namespace lockstep

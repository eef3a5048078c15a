#include "lockstep/formats/checkpoint_reader.h"

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/formats/box_bytes.h"
#include "lockstep/formats/checkpoint_folder.h"
#include "lockstep/formats/checksum.h"

namespace lockstep {

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
    place_box(read(piece, bytes_of(piece, tensor)), piece.offsets, piece.sizes, tensor.shape,
              checkpoint_dtype_size(tensor.dtype), whole);
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

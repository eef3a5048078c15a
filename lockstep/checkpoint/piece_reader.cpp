#include "lockstep/checkpoint/piece_reader.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/tensor/dtype_words.h"

namespace lockstep {
namespace {

// Returns the intersection of two boxes; nullopt if it is empty.
std::optional<Box> common_part(const CheckpointPiece& piece, const Box& box) {
  Box common;
  for (std::size_t d = 0; d < box.sizes.size(); ++d) {
    const std::int64_t begin = std::max(piece.offsets[d], box.offsets[d]);
    const std::int64_t end = std::min(piece.offsets[d] + piece.sizes[d], box.offsets[d] + box.sizes[d]);
    if (begin >= end) return std::nullopt;
    common.offsets.push_back(begin);
    common.sizes.push_back(end - begin);
  }
  return common;
}

at::Tensor part_of(const at::Tensor& tensor, const std::vector<std::int64_t>& base, const Box& box) {
  at::Tensor part = tensor;
  for (std::size_t d = 0; d < box.sizes.size(); ++d)
    part = part.narrow(static_cast<std::int64_t>(d), box.offsets[d] - base[d], box.sizes[d]);
  return part;
}

}  // namespace

PieceReader::PieceReader(std::string checkpoint, const CheckpointIndex& index)
    : checkpoint_(std::move(checkpoint)), index_(index), files_(index.files.size()) {}

void PieceReader::read(const CheckpointPiece& piece, const at::Tensor& contiguous) {
  std::unique_ptr<PlainFile>& file = files_[piece.file];
  if (!file) file = std::make_unique<PlainFile>(str(checkpoint_, '/', index_.files[piece.file].name));
  const std::span<std::byte> bytes(static_cast<std::byte*>(contiguous.mutable_data_ptr()),
                                   contiguous.nbytes());
  if (file->read_at(piece.begin, bytes) < bytes.size())
    throw FormatError(str(in_quotes(file->path()), " ends inside ", in_quotes(piece.key)));
}

void PieceReader::fill(const at::Tensor& target, const std::string& name, const Box& box) {
  const at::NoGradGuard no_grad;
  // shares the version counter, so autograd sees that values changed
  const at::Tensor detached = target.detach();
  const CheckpointTensor& tensor = index_.tensors.at(name);
  const at::ScalarType dtype = dtype_of_word(tensor.dtype);
  for (const CheckpointPiece& piece : tensor.pieces) {
    const auto common = common_part(piece, box);
    if (!common) continue;
    const at::Tensor part = part_of(detached, box.offsets, *common);
    const bool is_direct = common->sizes == piece.sizes && part.is_contiguous() && part.is_cpu() &&
                           part.scalar_type() == dtype && !part.is_conj() && !part.is_neg();
    if (is_direct) {
      read(piece, part);
      part.unsafeGetTensorImpl()->bump_version();
      continue;
    }
    const at::Tensor whole = at::empty(piece.sizes, at::TensorOptions(dtype));
    read(piece, whole);
    part.copy_(part_of(whole, piece.offsets, *common));
  }
}

at::Tensor PieceReader::make(const std::string& name) {
  const CheckpointTensor& tensor = index_.tensors.at(name);
  at::Tensor made = at::empty(tensor.shape, at::TensorOptions(dtype_of_word(tensor.dtype)));
  fill(made, name, box_of(tensor.shape));
  return made;
}

}  // namespace lockstep

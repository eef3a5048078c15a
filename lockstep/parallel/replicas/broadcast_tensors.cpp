#include "lockstep/parallel/replicas/broadcast_tensors.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include "lockstep/tensor/collectives.h"
#include "lockstep/tensor/tensor_call.h"

namespace lockstep {
namespace {

constexpr std::size_t PACK_BYTES = std::size_t{25} << 20;
// from this size on a copy costs more than a collective
constexpr std::size_t ALONE_BYTES = std::size_t{1} << 20;
constexpr std::size_t ALIGNMENT = 64;  // enough for every dtype

std::size_t aligned(std::size_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

void broadcast_pack(const std::vector<at::Tensor>& tensors, std::size_t bytes, const ProcessGroup& group,
                    GroupRank root) {
  const at::Tensor pack = at::empty({static_cast<std::int64_t>(bytes)},
                                    at::TensorOptions(tensors.front().device()).dtype(at::kByte));
  std::vector<at::Tensor> places;  // views of the pack, one for each tensor
  std::size_t offset = 0;
  for (const at::Tensor& tensor : tensors) {
    const auto length = static_cast<std::int64_t>(tensor.nbytes());
    const at::Tensor raw = pack.narrow(0, static_cast<std::int64_t>(offset), length);
    places.push_back(raw.view(tensor.scalar_type()).view(tensor.sizes()));
    offset += aligned(tensor.nbytes());
  }
  if (group.rank() == root.rank) {
    for (std::size_t i = 0; i < tensors.size(); ++i) places[i].copy_(tensors[i]);
  }
  broadcast(pack, root, group);
  if (group.rank() == root.rank) return;
  for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i].copy_(places[i]);
}

}  // namespace

bool repeats(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == c10::kStrided &&
         at::has_internal_overlap(tensor) == at::MemOverlap::Yes;
}

at::Tensor without_repeats(const at::Tensor& tensor) {
  if (!repeats(tensor)) return tensor;
  auto sizes = tensor.sizes().vec();
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (tensor.strides()[i] == 0 && sizes[i] > 1) sizes[i] = 1;
  }
  return tensor.as_strided(sizes, tensor.strides());
}

void broadcast_tensors(const std::vector<at::Tensor>& tensors, const ProcessGroup& group, GroupRank root) {
  const c10::NoGradGuard no_grad;
  std::vector<at::Tensor> packed;
  std::size_t bytes = 0;
  const auto flush = [&] {
    if (!packed.empty()) broadcast_pack(packed, bytes, group, root);
    packed.clear();
    bytes = 0;
  };
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor data = without_repeats(tensor.variable_data());  // has a version counter of its own
    if (data.nbytes() == 0) continue;
    if (data.nbytes() >= ALONE_BYTES && carried_dtype(data.scalar_type())) {
      broadcast(data, root, group);
      continue;
    }
    packed.push_back(data);
    bytes += aligned(data.nbytes());
    if (bytes >= PACK_BYTES) flush();
  }
  flush();
}

}  // namespace lockstep

#include "lockstep/parallel/zero/gather_named_tensors.h"

#include <ATen/ops/empty.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/comm/collectives/objects.h"
#include "lockstep/tensor/point_to_point.h"

namespace lockstep {
namespace {

using nlohmann::json;

// As bytes, so that the dtype does not matter.
at::Tensor bytes_of(const at::Tensor& tensor) { return tensor.reshape({-1}).view(at::kByte); }

json description_of(const NamedTensors& tensors) {
  json entries = json::array();
  for (const auto& [name, tensor] : tensors)
    entries.push_back({name, static_cast<int>(tensor.scalar_type()), tensor.sizes().vec()});
  return entries;
}

void receive(const json& entries, int source, const ProcessGroup& group, NamedTensors& all) {
  for (const json& entry : entries) {
    const auto dtype = static_cast<at::ScalarType>(entry.at(1).get<int>());
    all.emplace_back(entry.at(0).get<std::string>(),
                     at::empty(entry.at(2).get<std::vector<std::int64_t>>(), at::TensorOptions(dtype)));
    if (all.back().second.numel() > 0) recv(bytes_of(all.back().second), GroupRank{source}, group);
  }
}

}  // namespace

NamedTensors gather_named_tensors(const NamedTensors& own, const ProcessGroup& group, GroupRank root) {
  NamedTensors here;
  for (const auto& [name, tensor] : own) here.emplace_back(name, tensor.detach().to(at::kCPU));
  const std::vector<json> all = comm::gather_object(group, description_of(here), root);
  if (group.rank() != root.rank) {
    for (const auto& [name, tensor] : here)
      if (tensor.numel() > 0) send(bytes_of(tensor.contiguous()), root, group);
    return {};
  }
  for (int rank = 0; rank < group.size(); ++rank)
    if (rank != root.rank) receive(all[static_cast<std::size_t>(rank)], rank, group, here);
  return here;
}

}  // namespace lockstep

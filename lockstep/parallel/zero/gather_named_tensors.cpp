#include "lockstep/parallel/zero/gather_named_tensors.h"

#include <ATen/ops/empty.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/comm/collectives/objects.h"
#include "lockstep/tensor/asked_messages.h"
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

struct Awaited {
  GroupRank sender;
  at::Tensor place;
};

// Of the other ranks' tensors, in the order of ranks.
std::vector<Awaited> places_for(const std::vector<json>& descriptions, int own, NamedTensors& all) {
  std::vector<Awaited> awaited;
  for (int rank = 0; rank < static_cast<int>(descriptions.size()); ++rank) {
    if (rank == own) continue;
    for (const json& entry : descriptions[static_cast<std::size_t>(rank)]) {
      const auto dtype = static_cast<at::ScalarType>(entry.at(1).get<int>());
      all.emplace_back(entry.at(0).get<std::string>(),
                       at::empty(entry.at(2).get<std::vector<std::int64_t>>(), at::TensorOptions(dtype)));
      const at::Tensor& place = all.back().second;
      if (place.numel() > 0) awaited.push_back({GroupRank{rank}, bytes_of(place)});
    }
  }
  return awaited;
}

void receive(const std::vector<Awaited>& awaited, const ProcessGroup& group) {
  for (std::size_t i = 0; i <= awaited.size(); ++i) {
    if (i < awaited.size()) ask_for_next(awaited[i].sender, group);
    if (i > 0) recv(awaited[i - 1].place, awaited[i - 1].sender, group);
  }
}

}  // namespace

NamedTensors gather_named_tensors(const NamedTensors& own, const ProcessGroup& group, GroupRank root) {
  NamedTensors here;
  for (const auto& [name, tensor] : own) here.emplace_back(name, tensor.detach().to(at::kCPU));
  const std::vector<json> all = comm::gather_object(group, description_of(here), root);
  if (group.rank() != root.rank) {
    for (const auto& [name, tensor] : here)
      if (tensor.numel() > 0) send_when_asked(bytes_of(tensor.contiguous()), root, group);
    return {};
  }
  receive(places_for(all, root.rank, here), group);
  return here;
}

}  // namespace lockstep

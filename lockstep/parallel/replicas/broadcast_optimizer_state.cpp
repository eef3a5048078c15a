#include "lockstep/parallel/replicas/broadcast_optimizer_state.h"

#include <ATen/ops/empty.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/collectives/objects.h"
#include "lockstep/optim/torch_optimizer_state.h"
#include "lockstep/parallel/replicas/broadcast_tensors.h"

namespace lockstep {
namespace {

std::string place_in(const ProcessGroup& group) {
  return lockstep::str("broadcast_optimizer_state on group \"", group.name(), "\", rank ", group.rank(),
                       " of ", group.size());
}

// Returns dense copies in the CPU's memory. The root's tensors are the optimiser's own.
NamedTensors on_cpu(const NamedTensors& tensors) {
  NamedTensors copies;
  for (const auto& [name, tensor] : tensors)
    copies.emplace_back(name, tensor.detach().to(at::kCPU).contiguous());
  return copies;
}

// Returns names, dtypes and shapes of the root's state, or the reason why it has none.
nlohmann::json description_of(const NamedTensors& state) {
  nlohmann::json entries = nlohmann::json::array();
  for (const auto& [name, tensor] : state)
    entries.push_back({name, static_cast<int>(tensor.scalar_type()), tensor.sizes().vec()});
  return entries;
}

NamedTensors like(const nlohmann::json& entries) {
  NamedTensors state;
  for (const nlohmann::json& entry : entries)
    state.emplace_back(entry[0].get<std::string>(),
                       at::empty(entry[2].get<std::vector<std::int64_t>>(),
                                 at::TensorOptions(static_cast<at::ScalarType>(entry[1].get<int>()))));
  return state;
}

// Returns views of the same memory as bytes, so that the dtype does not matter.
std::vector<at::Tensor> bytes_of(const NamedTensors& state) {
  std::vector<at::Tensor> bytes;
  for (const auto& [name, tensor] : state)
    if (tensor.numel() > 0) bytes.push_back(tensor.reshape({-1}).view(at::kByte));
  return bytes;
}

// Throws on all ranks if `problem` is not empty on one.
void fail_together(const std::string& problem, const ProcessGroup& group) {
  const std::vector<std::string> all = comm::all_gather_object(group, problem);
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r].empty()) continue;
    throw InvalidArgument(lockstep::str(place_in(group), ": rank ", r, ": ", all[r],
                                        "; make the same optimiser over the same parameters on all ranks"));
  }
}

}  // namespace

void broadcast_optimizer_state(torch::optim::Optimizer& optimizer, Peer root, const ProcessGroup& group) {
  group.require_member("broadcast_optimizer_state");
  const int root_rank = root.in(group, "broadcast_optimizer_state", "root");
  const bool is_root = group.rank() == root_rank;
  NamedTensors state;
  nlohmann::json description;
  std::string problem;
  if (is_root) {
    try {
      state = on_cpu(state_dict(optimizer));
      description = description_of(state);
    } catch (const std::exception& error) {  // all ranks are told
      description = error.what();
    }
  }
  comm::broadcast_object(group, description, GroupRank{root_rank});
  if (description.is_string())
    throw InvalidArgument(
        lockstep::str(place_in(group), ": rank ", root_rank, ": ", description.get<std::string>()));
  if (!is_root) state = like(description);
  broadcast_tensors(bytes_of(state), group, {root_rank});
  if (!is_root) {
    try {
      load_state_dict(optimizer, state);
    } catch (const std::exception& error) {  // all ranks are told
      problem = error.what();
    }
  }
  fail_together(problem, group);
}

}  // namespace lockstep

#include "lockstep/compat/horovod/functions.h"

#include <ATen/Functions.h>
#include <torch/optim/lbfgs.h>
#include <torch/serialize/archive.h>

#include <cstring>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/comm/collectives/json_bytes.h"

namespace lockstep::compat::horovod {
namespace {

at::Tensor as_tensor(const std::string& bytes) {
  at::Tensor made = at::empty({static_cast<std::int64_t>(bytes.size())}, at::kByte);
  if (!bytes.empty()) std::memcpy(made.data_ptr(), bytes.data(), bytes.size());
  return made;
}

std::string as_bytes(const at::Tensor& tensor) {
  return {static_cast<const char*>(tensor.const_data_ptr()), static_cast<std::size_t>(tensor.numel())};
}

OperationOptions part_of(const OperationOptions& options, const char* part) {
  return {.name = options.name.empty() ? "" : options.name + "." + part, .process_set = options.process_set};
}

std::string broadcast_bytes(const std::string& bytes, int root_rank, const OperationOptions& options) {
  const bool is_root = rank() == root_rank;
  at::Tensor size = at::tensor({static_cast<std::int64_t>(bytes.size())}, at::kLong);
  broadcast_(size, root_rank, part_of(options, "size"));
  at::Tensor data = is_root ? as_tensor(bytes) : at::empty({size.item<std::int64_t>()}, at::kByte);
  broadcast_(data, root_rank, part_of(options, "data"));
  return is_root ? bytes : as_bytes(data);
}

}  // namespace

void broadcast_parameters(const NamedTensors& parameters, int root_rank, const ProcessSet& process_set) {
  std::vector<Handle> handles;
  for (const auto& [name, tensor] : parameters) {
    if (tensor.defined())
      handles.push_back(broadcast_async_(tensor, root_rank, {.name = name, .process_set = process_set}));
  }
  for (Handle& handle : handles) handle.synchronize();
}

void broadcast_parameters(const torch::nn::Module& module, int root_rank, const ProcessSet& process_set) {
  NamedTensors all = module.named_parameters().pairs();
  for (const auto& buffer : module.named_buffers().pairs()) all.push_back(buffer);
  broadcast_parameters(all, root_rank, process_set);
}

void broadcast_optimizer_state(torch::optim::Optimizer& optimizer, int root_rank,
                               const ProcessSet& process_set) {
  if (dynamic_cast<torch::optim::LBFGS*>(&optimizer) != nullptr)
    throw InvalidArgument("broadcast_optimizer_state: LBFGS has state that cannot be sent");
  std::ostringstream own;
  if (rank() == root_rank) {
    torch::serialize::OutputArchive archive;
    optimizer.save(archive);
    archive.save_to(own);
  }
  const std::string bytes =
      broadcast_bytes(own.str(), root_rank, {.name = "optimizer_state", .process_set = process_set});
  if (rank() == root_rank) return;
  std::istringstream stream(bytes);
  torch::serialize::InputArchive archive;
  archive.load_from(stream);
  optimizer.load(archive);
}

nlohmann::json broadcast_object(const nlohmann::json& object, int root_rank,
                                const OperationOptions& options) {
  const bool is_root = rank() == root_rank;
  const std::string bytes = broadcast_bytes(is_root ? comm::json_bytes(object) : "", root_rank, options);
  return is_root ? object : comm::json_of(bytes);
}

std::vector<nlohmann::json> allgather_object(const nlohmann::json& object, const OperationOptions& options) {
  const std::string own = comm::json_bytes(object);
  const at::Tensor sizes =
      allgather(at::tensor({static_cast<std::int64_t>(own.size())}, at::kLong), part_of(options, "size"));
  const std::string all = as_bytes(allgather(as_tensor(own), part_of(options, "data")));
  std::vector<nlohmann::json> objects;
  std::size_t at = 0;
  for (std::int64_t r = 0; r < sizes.numel(); ++r) {
    const auto size = static_cast<std::size_t>(sizes[r].item<std::int64_t>());
    objects.push_back(comm::json_of(all.substr(at, size)));
    at += size;
  }
  return objects;
}

}  // namespace lockstep::compat::horovod

#include "lockstep/checkpoint/checkpoint_state.h"

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/data/distributed_sampler.h"
#include "lockstep/optim/torch_optimizer_state.h"
#include "lockstep/tensor/random_state.h"
#include "lockstep/tensor/state_dict.h"

namespace lockstep {
namespace {

class ModuleItem : public CheckpointItem {
 public:
  explicit ModuleItem(torch::nn::Module& module) : module_(module) {}

  std::string_view kind() const override { return "module"; }
  ItemContents contents() override {
    ItemContents contents{.in_place = true};
    const auto buffers = module_.named_buffers();
    for (auto& entry : state_dict(module_))
      (buffers.contains(entry.first) ? contents.first_rank_tensors : contents.tensors)
          .push_back(std::move(entry));
    return contents;
  }
  void load(const LoadedItem& /*loaded*/) override {}

 private:
  torch::nn::Module& module_;
};

class TensorItem : public CheckpointItem {
 public:
  explicit TensorItem(at::Tensor tensor) : tensor_(std::move(tensor)) {}

  std::string_view kind() const override { return "tensor"; }
  ItemContents contents() override { return {.tensors = {{"", tensor_}}, .in_place = true}; }
  void load(const LoadedItem& /*loaded*/) override {}

 private:
  at::Tensor tensor_;
};

class ShardItem : public CheckpointItem {
 public:
  ShardItem(std::vector<std::int64_t> shape, std::vector<std::int64_t> offsets, at::Tensor tensor)
      : shard_{.name = "",
               .shape = std::move(shape),
               .offsets = std::move(offsets),
               .tensor = std::move(tensor)} {}

  std::string_view kind() const override { return "shard"; }
  ItemContents contents() override { return {.shards = {shard_}, .in_place = true}; }
  void load(const LoadedItem& /*loaded*/) override {}

 private:
  TensorShard shard_;
};

// "cpu", and "cuda.0", "cuda.1", … of a process that uses GPUs.
NamedTensors random_state() {
  NamedTensors states = {{"cpu", get_rng_state()}};
  if (!at::hasCUDA() || !at::detail::getCUDAHooks().hasPrimaryContext(0)) return states;
  for (const at::Tensor& state : get_rng_state_all())
    states.emplace_back(str("cuda.", states.size() - 1), state);
  return states;
}

void set_random_state(const NamedTensors& states) {
  std::vector<at::Tensor> on_gpus;
  for (const auto& [name, state] : states) {
    if (name == "cpu") {
      set_rng_state(state);
    } else {
      on_gpus.push_back(state);
    }
  }
  if (!on_gpus.empty()) set_rng_state_all(on_gpus);
}

class SamplerItem : public CheckpointItem {
 public:
  explicit SamplerItem(DistributedSampler& sampler) : sampler_(sampler) {}

  std::string_view kind() const override { return "sampler"; }

  ItemContents contents() override {
    const DistributedSamplerState& state = sampler_.state();
    return {.value = nlohmann::json{{"epoch", state.epoch},
                                    {"position", state.position},
                                    {"dataset_size", state.dataset_size},
                                    {"num_replicas", state.num_replicas},
                                    {"shuffle", state.shuffle},
                                    {"seed", state.seed},
                                    {"drop_last", state.drop_last}}};
  }

  void load(const LoadedItem& loaded) override {
    const nlohmann::json& value = *loaded.value;
    DistributedSamplerState state{.epoch = value.at("epoch").get<std::int64_t>(),
                                  .position = value.at("position").get<std::int64_t>(),
                                  .dataset_size = value.at("dataset_size").get<std::int64_t>(),
                                  .num_replicas = value.at("num_replicas").get<int>(),
                                  .shuffle = value.at("shuffle").get<bool>(),
                                  .seed = value.at("seed").get<std::uint64_t>(),
                                  .drop_last = value.at("drop_last").get<bool>()};
    const int replicas = sampler_.state().num_replicas;
    const std::int64_t consumed = state.position * state.num_replicas;
    if (replicas != state.num_replicas && consumed % replicas != 0)
      loaded.note(str("the sampler goes on at item ", consumed / replicas * replicas,
                      " of the epoch's order, not ", consumed, ", because ", replicas,
                      " ranks take equally many: ", consumed % replicas, " items come a second time"));
    state.position = consumed / replicas;
    state.num_replicas = replicas;
    sampler_.load_state(state);
  }

 private:
  DistributedSampler& sampler_;
};

}  // namespace

CheckpointState& CheckpointState::add(const std::string& name, torch::nn::Module& module) {
  return add_item(name, std::make_shared<ModuleItem>(module));
}

CheckpointState& CheckpointState::add(const std::string& name, torch::optim::Optimizer& optimizer) {
  if (auto* const own = dynamic_cast<HasCheckpointItem*>(&optimizer)) return add(name, *own);
  return add_item(name, std::make_shared<StateDictItem>([&optimizer] { return state_dict(optimizer); },
                                                        [&optimizer](const NamedTensors& tensors) {
                                                          load_state_dict(optimizer, tensors);
                                                        }));
}

CheckpointState& CheckpointState::add(const std::string& name, DistributedSampler& sampler) {
  if (!sampler.state().pad)
    throw InvalidArgument(
        str("CheckpointState: the sampler ", in_quotes(name),
            " has pad = false, so ranks are at different places of it; an evaluation starts "
            "anew, leave its sampler out"));
  return add_item(name, std::make_shared<SamplerItem>(sampler));
}

CheckpointState& CheckpointState::add(const std::string& name, const at::Tensor& tensor) {
  return add_item(name, std::make_shared<TensorItem>(tensor));
}

CheckpointState& CheckpointState::add_random_state(const std::string& name) {
  return add_item(name,
                  std::make_shared<StateDictItem>(random_state, set_random_state, /*of_each_rank=*/true));
}

CheckpointState& CheckpointState::add_shard(const std::string& name, std::vector<std::int64_t> shape,
                                            std::vector<std::int64_t> offsets, const at::Tensor& tensor) {
  return add_item(name, std::make_shared<ShardItem>(std::move(shape), std::move(offsets), tensor));
}

CheckpointState& CheckpointState::add_item(const std::string& name, std::shared_ptr<CheckpointItem> item) {
  const auto place =
      std::lower_bound(entries_.begin(), entries_.end(), name,
                       [](const Entry& entry, const std::string& key) { return entry.name < key; });
  if (place != entries_.end() && place->name == name)
    throw InvalidArgument(str("CheckpointState: the name ", in_quotes(name), " is taken"));
  if (name.empty() || name.find_first_of(".@") != std::string::npos)
    throw InvalidArgument(str("CheckpointState: the name ", in_quotes(name),
                              " is empty or has a '.' or '@', which divide the names of tensors"));
  entries_.insert(place, {name, std::move(item)});
  return *this;
}

}  // namespace lockstep

// CheckpointState: what a run must find again when it goes on: models, optimisers, schedulers, the sampler's
// place, random numbers, and the program's own tensors and values, each under a name.
//
//   int epoch = 0;
//   dist::CheckpointState state;
//   state.add("model", *net);
//   state.add("optimizer", optimizer);
//   state.add("sampler", sampler);
//   state.add_value("epoch", epoch);
//   state.add_random_state();
//   dist::save_checkpoint("runs/7", state, {.step = 1200});
//
// Kinds        add() takes
//                a torch::nn::Module or its holder: parameters and buffers, filled in place when loaded;
//                an at::Tensor, also in place;
//                a torch::optim::Optimizer, Lockstep's or libtorch's;
//                a ZeroRedundancyOptimizer, or a ShardedDataParallel and its optimiser, of which each rank
//                writes what is its part;
//                a DistributedSampler with padding: its epoch, and how far the epoch has come;
//                anything with state_dict() and load_state_dict(NamedTensors): LRScheduler,
//                ReduceLROnPlateau, GradScaler, EarlyStopping, a class of the program's own.
//              add_value() takes what nlohmann::json converts: numbers, strings, vectors, maps. NaN and
//              infinity arrive as they are.
//              add_each_rank() and add_each_rank_value() take what differs from rank to rank: a communication
//              hook's error feedback, a rank's own counters.
//              add_random_state() takes the generators of libtorch, of each rank.
//              add_shard() takes the part of a tensor that this rank holds, where ranks share one.
// Same names   on all ranks, in any order; save_checkpoint() and load_checkpoint() compare them.
// Lifetime     the state refers to what was added. That must live as long as the state is used.
// Other ranks  loaded by another number of ranks than saved it: what all ranks hold alike and shards are
//              there in full. Of what is each rank's own a rank gets that of its number; for a rank that has
//              none the item stays as it is, and LoadedCheckpoint::notes says so. The sampler goes on behind
//              what all ranks together have consumed; if that does not divide by the new number of ranks, it
//              begins some items earlier, and the notes say so.
// Fails        InvalidArgument: a name that is empty or taken, or a tensor that no file can hold (sparse,
//              quantised, without memory), named.
#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/checkpoint/checkpoint_item.h"
#include "lockstep/tensor/named_tensors.h"

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace lockstep {

class DistributedSampler;

// What add() takes beside the kinds that it knows.
template <typename T>
concept HasStateDict = requires(T& object, const NamedTensors& tensors) {
  { object.state_dict() } -> std::convertible_to<NamedTensors>;
  object.load_state_dict(tensors);
};
// With a torch::OrderedDict, as communication hooks have.
template <typename T>
concept HasOrderedStateDict = requires(T& object) {
  { object.state_dict().pairs() } -> std::convertible_to<NamedTensors>;
  object.load_state_dict(object.state_dict());
};

class CheckpointState {
 public:
  CheckpointState& add(const std::string& name, torch::nn::Module& module);
  CheckpointState& add(const std::string& name, torch::optim::Optimizer& optimizer);
  CheckpointState& add(const std::string& name, DistributedSampler& sampler);
  CheckpointState& add(const std::string& name, HasCheckpointItem& object) {
    return add_item(name, object.checkpoint_item());
  }
  // What is both an optimiser and that.
  template <std::derived_from<HasCheckpointItem> T>
  requires std::derived_from<T, torch::optim::Optimizer> CheckpointState& add(const std::string& name,
                                                                              T& object) {
    return add_item(name, object.checkpoint_item());
  }
  CheckpointState& add(const std::string& name, const at::Tensor& tensor);
  template <typename Holder>
  requires requires(const Holder& holder) {
    { *holder.ptr() } -> std::convertible_to<torch::nn::Module&>;
  }
  CheckpointState& add(const std::string& name, const Holder& holder) {
    return add(name, static_cast<torch::nn::Module&>(*holder.ptr()));
  }
  template <HasStateDict T>
  requires(!std::derived_from<T, torch::optim::Optimizer> &&
           !std::derived_from<T, HasCheckpointItem>) CheckpointState& add(const std::string& name,
                                                                          T& object) {
    return add_item(name, std::make_shared<StateDictItem>(
                              [&object]() -> NamedTensors { return object.state_dict(); },
                              [&object](const NamedTensors& tensors) { object.load_state_dict(tensors); }));
  }

  template <typename T> CheckpointState& add_value(const std::string& name, T& value) {
    return add_item(name, value_item(value, /*of_each_rank=*/false));
  }

  template <HasOrderedStateDict T> CheckpointState& add_each_rank(const std::string& name, T& object) {
    const auto load = [&object](const NamedTensors& tensors) {
      auto state = object.state_dict();
      state.clear();
      for (const auto& [key, tensor] : tensors) state.insert(key, tensor);
      object.load_state_dict(state);
    };
    return add_item(name, std::make_shared<StateDictItem>([&object] { return object.state_dict().pairs(); },
                                                          load, /*of_each_rank=*/true));
  }
  template <HasStateDict T> CheckpointState& add_each_rank(const std::string& name, T& object) {
    return add_item(name, std::make_shared<StateDictItem>(
                              [&object]() -> NamedTensors { return object.state_dict(); },
                              [&object](const NamedTensors& tensors) { object.load_state_dict(tensors); },
                              /*of_each_rank=*/true));
  }
  template <typename T> CheckpointState& add_each_rank_value(const std::string& name, T& value) {
    return add_item(name, value_item(value, /*of_each_rank=*/true));
  }
  CheckpointState& add_random_state(const std::string& name = "random");

  // This rank's box of a tensor of `shape`: from `offsets` on, of the size of `tensor`.
  CheckpointState& add_shard(const std::string& name, std::vector<std::int64_t> shape,
                             std::vector<std::int64_t> offsets, const at::Tensor& tensor);

  // For further kinds of one's own.
  CheckpointState& add_item(const std::string& name, std::shared_ptr<CheckpointItem> item);

  struct Entry {
    std::string name;
    std::shared_ptr<CheckpointItem> item;
  };
  const std::vector<Entry>& entries() const { return entries_; }  // by name

 private:
  template <typename T> static std::shared_ptr<CheckpointItem> value_item(T& value, bool of_each_rank) {
    return std::make_shared<ValueItem>([&value] { return nlohmann::json(value); },
                                       [&value](const nlohmann::json& loaded) { loaded.get_to(value); },
                                       of_each_rank);
  }

  std::vector<Entry> entries_;
};

}  // namespace lockstep

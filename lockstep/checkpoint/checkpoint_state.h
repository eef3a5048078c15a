// CheckpointState: the state that a run needs to resume: models, optimisers, schedulers, the sampler's place,
// random numbers, and the program's own tensors and values, each under a name.
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
//                a ZeroRedundancyOptimizer, or a ShardedDataParallel and its optimiser: each rank writes its
//                part;
//                a DistributedSampler with padding: its epoch, and its place in the epoch;
//                any class with state_dict() and load_state_dict(NamedTensors): LRScheduler,
//                ReduceLROnPlateau, GradScaler, EarlyStopping, a class of the program's own.
//              add_value() takes any type that nlohmann::json converts: numbers, strings, vectors, maps. NaN
//              and infinity are kept. add_each_rank() and add_each_rank_value() are for state that differs
//              from rank to rank: a communication hook's error feedback, a rank's own counters.
//              add_random_state() takes the generators of libtorch, of each rank. add_shard() takes this
//              rank's part of a tensor that ranks share.
// Same names   on all ranks, in any order; save_checkpoint() and load_checkpoint() compare them.
// Lifetime     The state refers to the added objects. They must live as long as the state is used.
// Other ranks  Another number of ranks may load the checkpoint. Items that are equal on all ranks, and
//              shards, are loaded in full. Of a rank's own items, a rank gets those of its number. If there
//              are none for it, the item stays as it is, and LoadedCheckpoint::notes says so. The sampler
//              continues after the items that all ranks together have consumed. If their number does not
//              divide by the new number of ranks, it begins some items earlier, and the notes say so.
// Fails        InvalidArgument that names the item: a name that is empty or taken, or a tensor that no file
//              can hold (sparse, quantised, without memory).
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

// The kinds that add() takes besides those it knows.
template <typename T>
concept HasStateDict = requires(T& object, const NamedTensors& tensors) {
  { object.state_dict() } -> std::convertible_to<NamedTensors>;
  object.load_state_dict(tensors);
};
// The same with a torch::OrderedDict, as communication hooks have.
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
  // A class that is both an optimiser and such an object.
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

  // This rank's box of a tensor of `shape`, from `offsets` on, with the size of `tensor`.
  CheckpointState& add_shard(const std::string& name, std::vector<std::int64_t> shape,
                             std::vector<std::int64_t> offsets, const at::Tensor& tensor);

  // For further kinds of a program's own.
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

#include "lockstep/parallel/zero/sharded_state.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/optim/state_entries.h"

namespace lockstep::zero {
namespace {

std::int64_t elements_of(const std::vector<std::int64_t>& shape, std::size_t from) {
  std::int64_t elements = 1;
  for (std::size_t d = from; d < shape.size(); ++d) elements *= shape[d];
  return elements;
}

class ShardedStateItem : public CheckpointItem {
 public:
  ShardedStateItem(optim::Optimizer& optimizer, std::vector<optim::ParameterShard> shards,
                   const NamedTensors& masters)
      : optimizer_(optimizer) {
    for (const auto& [name, tensor] : masters)
      masters_.emplace_back(lockstep::str("state.", name, ".master_weight"), tensor.detach());
    for (optim::ParameterShard& shard : shards) shards_.emplace(shard.name, std::move(shard));
  }

  std::string_view kind() const override { return "state"; }

  // Numbers, as the count of steps, are the same on all ranks.
  ItemContents contents() override {
    ItemContents contents;
    NamedTensors all = optimizer_.state_dict();
    all.insert(all.end(), masters_.begin(), masters_.end());
    for (const auto& [name, tensor] : all) {
      const optim::ParameterShard* const shard = shard_of(name);
      if (shard == nullptr || tensor.dim() == 0) {
        contents.tensors.emplace_back(name, tensor);
        continue;
      }
      for (const Box& box : boxes_of(shard->shape, shard->offset, tensor.numel()))
        contents.shards.push_back(
            {.name = name,
             .shape = shard->shape,
             .offsets = box.offsets,
             .tensor = tensor.narrow(0, box.begin, elements_of(box.sizes, 0)).view(box.sizes)});
    }
    return contents;
  }

  // A count of steps is every rank's; of the rest a rank without a part needs nothing.
  bool wants(const std::string& name) const override {
    const optim::ParameterShard* const shard = shard_of(name);
    return shard == nullptr || shard->tensor.numel() > 0 || optim::entry_of(name).key == "step";
  }

  void load(const LoadedItem& loaded) override {
    NamedTensors parts;
    for (const auto& [name, tensor] : loaded.tensors) {
      const optim::ParameterShard* const shard = shard_of(name);
      if (shard == nullptr || tensor.dim() == 0) {
        parts.emplace_back(name, tensor);
        continue;
      }
      if (tensor.sizes() != at::IntArrayRef(shard->shape))
        throw InvalidArgument(lockstep::str(in_quotes(name), " is ", tensor.sizes(),
                                            " in the checkpoint and ", at::IntArrayRef(shard->shape),
                                            " in the model"));
      const at::Tensor part = tensor.flatten().narrow(0, shard->offset, shard->tensor.numel());
      const auto master = std::find_if(masters_.begin(), masters_.end(),
                                       [&](const auto& entry) { return entry.first == name; });
      if (master == masters_.end()) {
        parts.emplace_back(name, part);
      } else {
        master->second.copy_(part);
      }
    }
    optimizer_.load_state_dict(parts);
  }

 private:
  // Of "state.PARAMETER.KEY"; null for an option.
  const optim::ParameterShard* shard_of(const std::string& name) const {
    const optim::StateEntry entry = optim::entry_of(name);
    const auto found = entry.is_option ? shards_.end() : shards_.find(entry.owner);
    return found == shards_.end() ? nullptr : &found->second;
  }

  optim::Optimizer& optimizer_;
  std::unordered_map<std::string, optim::ParameterShard> shards_;
  NamedTensors masters_;  // by the names of their entries
};

class CommonTensorsItem : public CheckpointItem {
 public:
  CommonTensorsItem(NamedTensors parameters, NamedTensors buffers, std::function<void()> loaded)
      : parameters_(std::move(parameters)), buffers_(std::move(buffers)), loaded_(std::move(loaded)) {}

  std::string_view kind() const override { return "module"; }
  ItemContents contents() override {
    return {.tensors = parameters_, .first_rank_tensors = buffers_, .in_place = true};
  }
  void load(const LoadedItem& /*loaded*/) override { loaded_(); }

 private:
  const NamedTensors parameters_, buffers_;
  const std::function<void()> loaded_;
};

}  // namespace

std::vector<Box> boxes_of(const std::vector<std::int64_t>& shape, std::int64_t begin, std::int64_t count) {
  std::vector<Box> boxes;
  if (count == 0) return boxes;
  for (std::int64_t at = begin; at < begin + count;) {
    // The largest box from here on: whole slices of the innermost dimensions that begin here and fit.
    std::size_t dim = shape.size();
    while (dim > 0 && at % elements_of(shape, dim - 1) == 0 &&
           at + elements_of(shape, dim - 1) <= begin + count)
      --dim;
    Box box{.offsets = std::vector<std::int64_t>(shape.size()), .sizes = shape, .begin = at - begin};
    for (std::size_t d = 0; d < shape.size(); ++d) {
      box.offsets[d] = at / elements_of(shape, d + 1) % shape[d];
      if (d < dim) box.sizes[d] = 1;
    }
    if (dim > 0) {  // several slices of the dimension outside of those
      const std::int64_t slice = elements_of(shape, dim);
      box.sizes[dim - 1] = std::min((begin + count - at) / slice, shape[dim - 1] - box.offsets[dim - 1]);
    }
    boxes.push_back(box);
    at += elements_of(boxes.back().sizes, 0);
  }
  return boxes;
}

std::shared_ptr<CheckpointItem> sharded_state_item(optim::Optimizer& optimizer,
                                                   std::vector<optim::ParameterShard> shards,
                                                   const NamedTensors& masters) {
  return std::make_shared<ShardedStateItem>(optimizer, std::move(shards), masters);
}

std::shared_ptr<CheckpointItem> common_tensors_item(NamedTensors parameters, NamedTensors buffers,
                                                    std::function<void()> loaded) {
  return std::make_shared<CommonTensorsItem>(std::move(parameters), std::move(buffers), std::move(loaded));
}

}  // namespace lockstep::zero

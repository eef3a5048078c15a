#include "lockstep/parallel/zero/sharded_state.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/checkpoint/save_plan.h"
#include "lockstep/optim/state_entries.h"

namespace lockstep::zero {
namespace {

// `values`: of the part.
void append_boxes(const optim::ParameterShard& part, const at::Tensor& values, ItemContents& contents) {
  std::int64_t begin = 0;
  for (const Box& box : boxes_of_range(part.shape, part.offset, values.numel())) {
    const std::int64_t count = elements_of(box);
    contents.shards.push_back({.name = part.name,
                               .shape = part.shape,
                               .offsets = box.offsets,
                               .tensor = values.narrow(0, begin, count).view(box.sizes)});
    begin += count;
  }
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
      append_boxes({.name = name, .shape = shard->shape, .offset = shard->offset, .tensor = {}}, tensor,
                   contents);
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
                                       [&name = name](const auto& entry) { return entry.first == name; });
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

// Checks the shape, because load() may not fill a part of another.
void expect_shape(const std::string& name, const at::Tensor& loaded, at::IntArrayRef shape) {
  if (loaded.sizes() != shape)
    throw InvalidArgument(lockstep::str(in_quotes(name), " is ", loaded.sizes(), " in the checkpoint and ",
                                        shape, " in the model"));
}

class PartedTensorsItem : public CheckpointItem {
 public:
  PartedTensorsItem(std::vector<optim::ParameterShard> parts, NamedTensors whole, NamedTensors buffers,
                    AroundLoad around)
      : parts_(std::move(parts)),
        whole_(std::move(whole)),
        buffers_(std::move(buffers)),
        around_(std::move(around)) {}

  std::string_view kind() const override { return "module"; }

  ItemContents contents() override {
    ItemContents contents{.tensors = whole_, .first_rank_tensors = buffers_};
    for (const optim::ParameterShard& part : parts_) append_boxes(part, part.tensor.detach(), contents);
    return contents;
  }

  bool wants(const std::string& name) const override {
    const auto is_it = [&](const optim::ParameterShard& part) { return part.name == name; };
    const auto found = std::find_if(parts_.begin(), parts_.end(), is_it);
    return found == parts_.end() || found->tensor.numel() > 0;
  }

  void load(const LoadedItem& item) override {
    const at::NoGradGuard no_grad;
    std::unordered_map<std::string, at::Tensor> found(item.tensors.begin(), item.tensors.end());
    for (const auto& [name, tensor] : item.rank_tensors) found[name] = tensor;  // buffers of this rank
    around_.begins();
    for (const optim::ParameterShard& part : parts_) {
      if (part.tensor.numel() == 0) continue;
      const at::Tensor whole = value_of(found, part.name);
      expect_shape(part.name, whole, part.shape);
      part.tensor.detach().copy_(whole.flatten().narrow(0, part.offset, part.tensor.numel()));
    }
    for (const NamedTensors* tensors : {&whole_, &buffers_}) {
      for (const auto& [name, tensor] : *tensors) {
        const at::Tensor whole = value_of(found, name);
        expect_shape(name, whole, tensor.sizes());
        tensor.detach().copy_(whole);
      }
    }
    around_.ended();
  }

 private:
  static at::Tensor value_of(const std::unordered_map<std::string, at::Tensor>& found,
                             const std::string& name) {
    const auto at = found.find(name);
    if (at == found.end()) throw InvalidArgument(lockstep::str("the checkpoint lacks ", in_quotes(name)));
    return at->second;
  }

  const std::vector<optim::ParameterShard> parts_;
  const NamedTensors whole_, buffers_;
  const AroundLoad around_;
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

std::shared_ptr<CheckpointItem> sharded_state_item(optim::Optimizer& optimizer,
                                                   std::vector<optim::ParameterShard> shards,
                                                   const NamedTensors& masters) {
  return std::make_shared<ShardedStateItem>(optimizer, std::move(shards), masters);
}

std::shared_ptr<CheckpointItem> parted_tensors_item(std::vector<optim::ParameterShard> parts,
                                                    NamedTensors whole, NamedTensors buffers,
                                                    AroundLoad around) {
  return std::make_shared<PartedTensorsItem>(std::move(parts), std::move(whole), std::move(buffers),
                                             std::move(around));
}

std::shared_ptr<CheckpointItem> common_tensors_item(NamedTensors parameters, NamedTensors buffers,
                                                    std::function<void()> loaded) {
  return std::make_shared<CommonTensorsItem>(std::move(parameters), std::move(buffers), std::move(loaded));
}

}  // namespace lockstep::zero

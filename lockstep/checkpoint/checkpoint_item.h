// CheckpointItem: one named part of a CheckpointState, as save_checkpoint() and load_checkpoint() see it. For
// programs that add a kind of their own.
//
//   class Clock : public dist::CheckpointItem {
//    public:
//     std::string_view kind() const override { return "value"; }
//     dist::ItemContents contents() override { return {.value = nlohmann::json(now_)}; }
//     void load(const dist::LoadedItem& loaded) override { loaded.value->get_to(now_); }
//
//    private:
//     double now_ = 0;
//   };
//
// contents()  is called on every rank for each save. It is also called for each load, which then knows the
//             tensors that can be filled in place.
// load()      is called on every rank after all bytes of the checkpoint were verified and every name was
//             found. If it throws, load_checkpoint() throws that error on all ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/tensor/named_tensors.h"

namespace lockstep {

// This rank's part of a tensor that ranks share.
struct TensorShard {
  std::string name;
  std::vector<std::int64_t> shape;    // of the whole tensor
  std::vector<std::int64_t> offsets;  // offsets of `tensor` in the whole tensor
  at::Tensor tensor;
};

struct ItemContents {
  NamedTensors tensors = {};  // the same on all ranks
  // those of rank 0 count; if a rank's differ, they are saved beside them
  NamedTensors first_rank_tensors = {};
  NamedTensors rank_tensors = {};  // different on each rank
  std::vector<TensorShard> shards = {};
  std::optional<nlohmann::json> value = {};       // the same on all ranks
  std::optional<nlohmann::json> rank_value = {};  // different on each rank
  // Loading copies into these very tensors. Otherwise load() gets new ones, under the names that the
  // checkpoint has for this item.
  bool in_place = false;
  // Of the names of the tensors a rank has some, and other ranks the rest, as the stages of a pipeline.
  bool in_parts = false;
};

struct LoadedItem {
  NamedTensors tensors = {};       // empty if the item is filled in place
  NamedTensors rank_tensors = {};  // the same, those of this rank
  std::optional<nlohmann::json> value = {};
  std::optional<nlohmann::json> rank_value = {};
  int rank = 0;  // rank of this process, and number of ranks
  int ranks = 1;
  int saved_ranks = 1;  // how many ranks saved the checkpoint
  // Adds a sentence to LoadedCheckpoint::notes.
  std::function<void(const std::string&)> note = [](const std::string&) {};
};

class CheckpointItem {
 public:
  CheckpointItem() = default;
  virtual ~CheckpointItem() = default;
  CheckpointItem(const CheckpointItem&) = delete;
  CheckpointItem& operator=(const CheckpointItem&) = delete;

  // One word for `lockstep ckpt ls`.
  virtual std::string_view kind() const = 0;
  virtual ItemContents contents() = 0;
  // Whether load() needs the tensor of that name, among those that the checkpoint has for this item. Others
  // are not read. Not called for items that are filled in place.
  virtual bool wants(const std::string& /*name*/) const { return true; }
  virtual void load(const LoadedItem& loaded) = 0;
};

// An object that brings an item of its own: an optimiser or a model of which each rank holds a part.
class HasCheckpointItem {
 public:
  HasCheckpointItem() = default;
  virtual ~HasCheckpointItem() = default;
  HasCheckpointItem(const HasCheckpointItem&) = delete;
  HasCheckpointItem& operator=(const HasCheckpointItem&) = delete;

  // The item refers to this object, which must live as long as the item is used.
  virtual std::shared_ptr<CheckpointItem> checkpoint_item() = 0;
};

// An item for any object with a state_dict() that can load it again.
class StateDictItem : public CheckpointItem {
 public:
  StateDictItem(std::function<NamedTensors()> save, std::function<void(const NamedTensors&)> load,
                bool of_each_rank = false)
      : save_(std::move(save)), load_(std::move(load)), of_each_rank_(of_each_rank) {}

  std::string_view kind() const override { return of_each_rank_ ? "state of each rank" : "state"; }
  ItemContents contents() override;
  void load(const LoadedItem& loaded) override;

 private:
  std::function<NamedTensors()> save_;
  std::function<void(const NamedTensors&)> load_;
  bool of_each_rank_;
};

class ValueItem : public CheckpointItem {
 public:
  ValueItem(std::function<nlohmann::json()> save, std::function<void(const nlohmann::json&)> load,
            bool of_each_rank)
      : save_(std::move(save)), load_(std::move(load)), of_each_rank_(of_each_rank) {}

  std::string_view kind() const override { return of_each_rank_ ? "value of each rank" : "value"; }
  ItemContents contents() override;
  void load(const LoadedItem& loaded) override;

 private:
  std::function<nlohmann::json()> save_;
  std::function<void(const nlohmann::json&)> load_;
  bool of_each_rank_;
};

}  // namespace lockstep

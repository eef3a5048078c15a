// CheckpointItem: one named thing in a CheckpointState, as save_checkpoint() and load_checkpoint() see it.
// Of interest to whoever adds a kind of their own.
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
// contents()  is called on every rank for each save and, to learn what may be filled in place, for each
//             load.
// load()      is called on every rank after all bytes of the checkpoint were verified and every name was
//             found. What it throws is thrown by load_checkpoint() on all ranks.
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
  std::vector<std::int64_t> offsets;  // of `tensor` in it
  at::Tensor tensor;
};

struct ItemContents {
  NamedTensors tensors = {};             // the same on all ranks
  NamedTensors first_rank_tensors = {};  // rank 0's count; those of a rank that differ are saved beside them
  NamedTensors rank_tensors = {};        // this rank's own
  std::vector<TensorShard> shards = {};
  std::optional<nlohmann::json> value = {};       // the same on all ranks
  std::optional<nlohmann::json> rank_value = {};  // this rank's own
  // Loading copies into these very tensors. Otherwise load() is given new ones, of whatever names the
  // checkpoint has for this item.
  bool in_place = false;
};

struct LoadedItem {
  NamedTensors tensors = {};       // unless the item is filled in place
  NamedTensors rank_tensors = {};  // the same, of this rank
  std::optional<nlohmann::json> value = {};
  std::optional<nlohmann::json> rank_value = {};
  int rank = 0;  // of this process, and how many there are
  int ranks = 1;
  int saved_ranks = 1;  // how many ranks saved the checkpoint
  // To be added to LoadedCheckpoint::notes.
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
  // Whether load() needs the tensor of that name, of those that the checkpoint has for this item; others are
  // not read. Not asked about what is filled in place.
  virtual bool wants(const std::string& /*name*/) const { return true; }
  virtual void load(const LoadedItem& loaded) = 0;
};

// What brings an item of its own: an optimiser or a model of which each rank holds a part.
class HasCheckpointItem {
 public:
  HasCheckpointItem() = default;
  virtual ~HasCheckpointItem() = default;
  HasCheckpointItem(const HasCheckpointItem&) = delete;
  HasCheckpointItem& operator=(const HasCheckpointItem&) = delete;

  // It refers to this object, which lives as long as it is used.
  virtual std::shared_ptr<CheckpointItem> checkpoint_item() = 0;
};

// What has a state_dict() and takes it back.
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

#include "lockstep/parallel/tensor_parallel/model_state.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/optim/clip_grad.h"
#include "lockstep/optim/model_part.h"
#include "lockstep/optim/state_entries.h"
#include "lockstep/tensor/state_dict.h"

namespace lockstep::tensor_parallel {
namespace {

using PiecesByName = std::unordered_map<std::string, Partition>;

PiecesByName pieces_by_name(const torch::nn::Module& net) {
  PiecesByName pieces;
  for (ParameterPiece& piece : named_pieces(net)) pieces.emplace(piece.name, std::move(piece.partition));
  return pieces;
}

// A tensor that this rank has whole.
TensorShard whole_shard(const std::string& name, const at::Tensor& tensor) {
  return {.name = name,
          .shape = tensor.sizes().vec(),
          .offsets = std::vector<std::int64_t>(static_cast<std::size_t>(tensor.dim())),
          .tensor = tensor.detach()};
}

// A box of a piece, as boxes of the whole: one for each stretch that it meets.
void append_of_piece(const TensorShard& box, const Partition& partition, std::vector<TensorShard>& shards) {
  const auto dim = static_cast<std::size_t>(partition.dim);
  const std::int64_t first = box.offsets[dim], end = first + box.tensor.size(partition.dim);
  std::int64_t within = 0;  // where the stretch begins in the piece
  for (const Stretch& stretch : partition.stretches) {
    const std::int64_t from = std::max(first, within), to = std::min(end, within + stretch.size);
    if (from < to) {
      std::vector<std::int64_t> offsets = box.offsets;
      offsets[dim] = stretch.begin + from - within;
      shards.push_back({.name = box.name,
                        .shape = partition.shape,
                        .offsets = std::move(offsets),
                        .tensor = box.tensor.narrow(partition.dim, from - first, to - from)});
    }
    within += stretch.size;
  }
}

// What another item saves of this rank's tensors, as parts of a model that lies on many ranks.
class PartsItem : public CheckpointItem {
 public:
  // Which parameter or buffer a tensor of the item belongs to, and whether it has that one's shape unless it
  // is a number.
  struct Owner {
    std::string name;
    bool shares_shape = true;
  };
  using OwnerOf = std::function<Owner(const std::string& name)>;

  PartsItem(std::shared_ptr<CheckpointItem> item, const torch::nn::Module& net, OwnerOf owner_of)
      : item_(std::move(item)), pieces_(pieces_by_name(net)), owner_of_(std::move(owner_of)) {
    for (const auto& entry : state_dict(net)) own_.insert(entry.first);
  }

  std::string_view kind() const override { return item_->kind(); }

  ItemContents contents() override {
    ItemContents inner = item_->contents();
    ItemContents parts{.in_place = inner.in_place, .in_parts = true};
    for (const NamedTensors* const tensors : {&inner.tensors, &inner.first_rank_tensors})
      for (const auto& [name, tensor] : *tensors) append(whole_shard(name, tensor), parts);
    for (const TensorShard& shard : inner.shards) append(shard, parts);
    return parts;
  }

  // Tensors of other stages are not read.
  bool wants(const std::string& name) const override {
    return own_.contains(owner_of_(name).name) && item_->wants(name);
  }

  void load(const LoadedItem& loaded) override {
    LoadedItem own = loaded;
    for (auto& [name, tensor] : own.tensors) {
      const Partition* const partition = partition_of_tensor(name, tensor.dim());
      if (partition == nullptr) continue;
      if (tensor.sizes() != at::IntArrayRef(partition->shape))
        throw InvalidArgument(lockstep::str(in_quotes(name), " is ", tensor.sizes(),
                                            " in the checkpoint and ", at::IntArrayRef(partition->shape),
                                            " in the model"));
      tensor = piece_of(tensor, *partition);
    }
    item_->load(own);
  }

 private:
  // Of a tensor of a parameter's shape; null for what this rank has whole, such as a count of steps.
  const Partition* partition_of_tensor(const std::string& name, std::int64_t dim) const {
    const Owner owner = owner_of_(name);
    const auto found = owner.shares_shape && dim > 0 ? pieces_.find(owner.name) : pieces_.end();
    return found == pieces_.end() ? nullptr : &found->second;
  }

  void append(const TensorShard& shard, ItemContents& parts) const {
    const Partition* const partition = partition_of_tensor(shard.name, shard.tensor.dim());
    if (partition == nullptr)
      parts.shards.push_back(shard);
    else
      append_of_piece(shard, *partition, parts.shards);
  }

  const std::shared_ptr<CheckpointItem> item_;
  const PiecesByName pieces_;
  std::unordered_set<std::string> own_;  // parameters and buffers of this rank
  const OwnerOf owner_of_;
};

// A net's own tensors, filled in place.
class NetItem : public CheckpointItem {
 public:
  explicit NetItem(torch::nn::Module& net) : net_(net) {}

  std::string_view kind() const override { return "module"; }
  ItemContents contents() override { return {.tensors = state_dict(net_), .in_place = true}; }
  void load(const LoadedItem& /*loaded*/) override {}

 private:
  torch::nn::Module& net_;
};

std::shared_ptr<CheckpointItem> own_item(optim::Optimizer& optimizer) {
  if (auto* const with_item = dynamic_cast<HasCheckpointItem*>(&optimizer))
    return with_item->checkpoint_item();
  return std::make_shared<StateDictItem>(
      [&optimizer] {
        NamedTensors state = optimizer.state_dict();
        if (optim::is_by_number(state))
          throw InvalidArgument(
              "OptimizerState: the optimiser's parameters have no names; make it of "
              "net->named_parameters().pairs()");
        return state;
      },
      [&optimizer](const NamedTensors& state) { optimizer.load_state_dict(state); });
}

}  // namespace

std::vector<ParameterPiece> named_pieces(const torch::nn::Module& net) {
  std::vector<ParameterPiece> pieces;
  const auto add = [&](const torch::nn::Module& module, const std::string& prefix) {
    const auto* const owner = dynamic_cast<const HasPieces*>(&module);
    if (owner == nullptr) return;
    for (ParameterPiece& piece : owner->pieces()) {
      piece.name.insert(0, prefix);
      pieces.push_back(std::move(piece));
    }
  };
  add(net, "");
  for (const auto& entry : net.named_modules("", /*include_self=*/false))
    add(*entry.value(), entry.key() + ".");
  return pieces;
}

std::shared_ptr<CheckpointItem> ModelState::checkpoint_item() {
  return std::make_shared<PartsItem>(
      wrapper_ == nullptr ? std::make_shared<NetItem>(net_) : wrapper_->checkpoint_item(), net_,
      [](const std::string& name) { return PartsItem::Owner{.name = name}; });
}

// In a state by name an option belongs to a parameter, too.
std::shared_ptr<CheckpointItem> OptimizerState::checkpoint_item() {
  return std::make_shared<PartsItem>(own_item(optimizer_), net_, [](const std::string& name) {
    const optim::StateEntry entry = optim::entry_of(name);
    return PartsItem::Owner{.name = entry.owner, .shares_shape = !entry.is_option};
  });
}

// NOLINTNEXTLINE(readability-identifier-naming): torch's name
double clip_grad_norm_(const torch::nn::Module& net, double max_norm, const ProcessGroup& group) {
  const PiecesByName pieces = pieces_by_name(net);
  std::vector<at::Tensor> parameters, in_pieces, whole;
  for (const auto& entry : net.named_parameters()) {
    const at::Tensor& parameter = entry.value();
    parameters.push_back(parameter);
    if (optim::is_part(parameter, optim::ModelPart::STAGE))
      throw InvalidArgument(
          str("tensor_parallel::clip_grad_norm_: ", optim::why_not_the_models_norm({parameter})));
    if (parameter.grad().defined())
      (pieces.contains(entry.key()) ? in_pieces : whole).push_back(parameter.grad());
  }
  const double norm =
      std::hypot(get_total_norm(in_pieces, 2.0, false, NormReducer(group)), get_total_norm(whole));
  clip_grads_with_norm_(parameters, max_norm, norm);
  return norm;
}

void reduce_norms(optim::Optimizer& optimizer, const torch::nn::Module& net, const ProcessGroup& group) {
  std::unordered_set<std::string> names;
  for (const ParameterPiece& piece : named_pieces(net)) names.insert(piece.name);
  optimizer.reduce_norms_of_pieces(std::move(names), NormReducer(group));
}

}  // namespace lockstep::tensor_parallel

#include "lockstep/parallel/tensor_parallel/model_state.h"

#include <torch/nn/module.h>

#include <cmath>
#include <unordered_map>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/optim/clip_grad.h"
#include "lockstep/optim/state_entries.h"
#include "lockstep/tensor/state_dict.h"

namespace lockstep::tensor_parallel {
namespace {

using PiecesByName = std::unordered_map<std::string, ParameterPiece>;

PiecesByName pieces_by_name(const torch::nn::Module& net) {
  PiecesByName pieces;
  for (ParameterPiece& piece : named_pieces(net)) {
    const std::string name = piece.name;
    pieces.emplace(name, std::move(piece));
  }
  return pieces;
}

// `tensor`, of a piece's shape, as parts of the whole.
void append_shards(const std::string& name, const Partition& partition, const at::Tensor& tensor,
                   ItemContents& contents) {
  std::int64_t within = 0;
  for (const Stretch& stretch : partition.stretches) {
    std::vector<std::int64_t> offsets(partition.shape.size());
    offsets[static_cast<std::size_t>(partition.dim)] = stretch.begin;
    contents.shards.push_back({.name = name,
                               .shape = partition.shape,
                               .offsets = std::move(offsets),
                               .tensor = tensor.detach().narrow(partition.dim, within, stretch.size)});
    within += stretch.size;
  }
}

class ModelItem : public CheckpointItem {
 public:
  explicit ModelItem(torch::nn::Module& net) : net_(net) {}

  std::string_view kind() const override { return "module"; }

  ItemContents contents() override {
    ItemContents contents{.in_place = true};
    const PiecesByName pieces = pieces_by_name(net_);
    const auto buffers = net_.named_buffers();
    for (auto& [name, tensor] : state_dict(net_)) {
      if (const auto piece = pieces.find(name); piece != pieces.end()) {
        append_shards(name, piece->second.partition, tensor, contents);
      } else {
        (buffers.contains(name) ? contents.first_rank_tensors : contents.tensors).emplace_back(name, tensor);
      }
    }
    return contents;
  }

  void load(const LoadedItem& /*loaded*/) override {}

 private:
  torch::nn::Module& net_;
};

class OptimizerItem : public CheckpointItem {
 public:
  OptimizerItem(optim::Optimizer& optimizer, torch::nn::Module& net)
      : optimizer_(optimizer), pieces_(pieces_by_name(net)) {}

  std::string_view kind() const override { return "state"; }

  ItemContents contents() override {
    ItemContents contents;
    const NamedTensors state = optimizer_.state_dict();
    if (optim::is_by_number(state))
      throw InvalidArgument(
          "OptimizerState: the optimiser's parameters have no names; make it of "
          "net->named_parameters().pairs()");
    for (const auto& [name, tensor] : state) {
      const ParameterPiece* const piece = piece_of_entry(name);
      if (piece != nullptr && tensor.dim() > 0) {
        append_shards(name, piece->partition, tensor, contents);
      } else {
        contents.tensors.emplace_back(name, tensor);
      }
    }
    return contents;
  }

  void load(const LoadedItem& loaded) override {
    NamedTensors own;
    for (const auto& [name, whole] : loaded.tensors) {
      const ParameterPiece* const piece = piece_of_entry(name);
      if (piece == nullptr || whole.dim() == 0) {
        own.emplace_back(name, whole);
        continue;
      }
      if (whole.sizes() != at::IntArrayRef(piece->partition.shape))
        throw InvalidArgument(lockstep::str(in_quotes(name), " is ", whole.sizes(), " in the checkpoint and ",
                                            at::IntArrayRef(piece->partition.shape), " in the model"));
      own.emplace_back(name, tensor_parallel::piece_of(whole, piece->partition));
    }
    optimizer_.load_state_dict(own);
  }

 private:
  // Of "state.PARAMETER.KEY"; null for an option and for a whole parameter.
  const ParameterPiece* piece_of_entry(const std::string& name) const {
    const optim::StateEntry entry = optim::entry_of(name);
    const auto found = entry.is_option ? pieces_.end() : pieces_.find(entry.owner);
    return found == pieces_.end() ? nullptr : &found->second;
  }

  optim::Optimizer& optimizer_;
  const PiecesByName pieces_;
};

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

std::shared_ptr<CheckpointItem> ModelState::checkpoint_item() { return std::make_shared<ModelItem>(net_); }

std::shared_ptr<CheckpointItem> OptimizerState::checkpoint_item() {
  return std::make_shared<OptimizerItem>(optimizer_, net_);
}

// NOLINTNEXTLINE(readability-identifier-naming): torch's name
double clip_grad_norm_(const torch::nn::Module& net, double max_norm, const ProcessGroup& group) {
  const PiecesByName pieces = pieces_by_name(net);
  std::vector<at::Tensor> parameters, in_pieces, whole;
  for (const auto& entry : net.named_parameters()) {
    const at::Tensor& parameter = entry.value();
    parameters.push_back(parameter);
    if (parameter.grad().defined())
      (pieces.contains(entry.key()) ? in_pieces : whole).push_back(parameter.grad());
  }
  const double norm =
      std::hypot(get_total_norm(in_pieces, 2.0, false, NormReducer(group)), get_total_norm(whole));
  clip_grads_with_norm_(parameters, max_norm, norm);
  return norm;
}

}  // namespace lockstep::tensor_parallel

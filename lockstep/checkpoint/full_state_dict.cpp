#include "lockstep/checkpoint/full_state_dict.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/checkpoint/checkpoint_ranks.h"
#include "lockstep/checkpoint/save_plan.h"
#include "lockstep/comm/purpose.h"
#include "lockstep/formats/safetensors_writer.h"
#include "lockstep/tensor/asked_messages.h"
#include "lockstep/tensor/dtype_words.h"
#include "lockstep/tensor/point_to_point.h"

namespace lockstep {
namespace {

using nlohmann::json;
using Visit = std::function<void(const std::string&, const at::Tensor&)>;

at::Tensor part_in(at::Tensor tensor, const Box& box) {
  for (std::size_t d = 0; d < box.sizes.size(); ++d)
    tensor = tensor.narrow(static_cast<std::int64_t>(d), box.offsets[d], box.sizes[d]);
  return tensor;
}

std::span<const std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

// Of a contiguous tensor, so that the dtype does not matter to messages.
at::Tensor as_bytes(const at::Tensor& tensor) { return tensor.reshape({-1}).view(at::kByte); }

// What this rank contributes: its shards, and on rank 0 what all ranks hold alike.
std::vector<TensorShard> parts_of(CheckpointItem& item, bool is_first) {
  ItemContents contents = item.contents();
  std::vector<TensorShard> parts = std::move(contents.shards);
  if (!is_first) return parts;
  for (const NamedTensors* const tensors : {&contents.tensors, &contents.first_rank_tensors}) {
    for (const auto& [name, tensor] : *tensors)
      parts.push_back({.name = name,
                       .shape = tensor.sizes().vec(),
                       .offsets = std::vector<std::int64_t>(static_cast<std::size_t>(tensor.dim())),
                       .tensor = tensor});
  }
  return parts;
}

json declaration_of(const std::vector<TensorShard>& parts) {
  json all = json::array();
  for (const TensorShard& part : parts)
    all.push_back({part.name, std::string(dtype_word(part.tensor.scalar_type())), part.shape, part.offsets,
                   part.tensor.sizes().vec()});
  return all;
}

SavePlan plan_of(const std::vector<json>& declarations) {
  std::vector<std::vector<DeclaredShard>> shards;
  for (const json& declaration : declarations) {
    shards.emplace_back();
    for (const json& part : declaration)
      shards.back().push_back({{part.at(0), part.at(1), part.at(2)}, {part.at(3), part.at(4)}});
  }
  return save_plan({}, shards);
}

class Gathering {
 public:
  Gathering(std::string call, HasCheckpointItem& object, const FullStateDictOptions& options)
      : group_(checkpoint_group(options.process_group, call)),
        ranks_(std::move(call), group_),
        item_(object.checkpoint_item()),
        parts_(parts_of(*item_, ranks_.rank() == 0)) {
    const std::vector<json> declarations = ranks_.all_try([&] { return declaration_of(parts_); });
    ranks_.all_try([&]() -> json {
      plan_ = plan_of(declarations);
      return {};
    });
    for (std::size_t rank = 0; rank < plan_.of_rank.size(); ++rank) {
      for (const PlannedPiece& piece : plan_.of_rank[rank]) {
        if (piece.bytes > 0) pieces_[piece.tensor].push_back({static_cast<int>(rank), piece.box});
      }
    }
  }

  const CheckpointRanks& ranks() const { return ranks_; }
  std::vector<SafetensorsEntry> entries() const {
    std::vector<SafetensorsEntry> entries;
    for (const DeclaredTensor& tensor : plan_.tensors)
      entries.push_back({tensor.name, tensor.dtype, tensor.shape});
    return entries;
  }

  // `names` are rank 0's. What `visit` throws comes after the last tensor, so that no sender is left alone.
  void run(const std::vector<std::string>& names, const Visit& visit) {
    const at::NoGradGuard no_grad;
    const Acting acting(Purpose::CHECKPOINT);
    std::map<std::string, DeclaredTensor> declared;
    for (const DeclaredTensor& tensor : plan_.tensors) declared.emplace(tensor.name, tensor);
    std::exception_ptr failure;
    if (ranks_.rank() == 0) begin_asking(names);
    for (const std::string& name : names) {
      if (ranks_.rank() != 0) {
        send_pieces(name);
        continue;
      }
      const at::Tensor whole = receive(declared.at(name));
      if (failure != nullptr) continue;
      try {
        visit(name, whole);
      } catch (...) {
        failure = std::current_exception();
      }
    }
    ranks_.on_rank_0([&]() -> json {
      if (failure != nullptr) std::rethrow_exception(failure);
      return {};
    });
  }

 private:
  struct Piece {
    int rank = 0;
    Box box;
  };

  std::vector<Piece> pieces_of(const std::string& name) const {
    const auto found = pieces_.find(name);
    return found == pieces_.end() ? std::vector<Piece>() : found->second;  // a tensor of no elements
  }

  // Of one of this rank's parts, in which the plan has put the piece.
  at::Tensor own(const std::string& name, const Box& box) const {
    for (const TensorShard& part : parts_) {
      if (part.name != name) continue;
      Box within = box;
      bool is_inside = true;
      for (std::size_t d = 0; d < box.sizes.size(); ++d) {
        within.offsets[d] -= part.offsets[d];
        is_inside = is_inside && within.offsets[d] >= 0 &&
                    within.offsets[d] + box.sizes[d] <= part.tensor.size(static_cast<std::int64_t>(d));
      }
      if (is_inside) return part_in(part.tensor.detach(), within);
    }
    throw InternalError(str(ranks_.call(), ": no part of ", in_quotes(name), " holds its piece"));
  }

  void send_pieces(const std::string& name) const {
    for (const Piece& piece : pieces_of(name)) {
      if (piece.rank == ranks_.rank())
        send_when_asked(as_bytes(own(name, piece.box).contiguous()), GroupRank{0}, *group_);
    }
  }

  // Of the pieces that come from other ranks, in the order in which they are received.
  void begin_asking(const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      for (const Piece& piece : pieces_of(name)) {
        if (piece.rank != 0) to_ask_.push_back(piece.rank);
      }
    }
    ask();
  }
  void ask() {
    if (to_ask_.empty()) return;
    ask_for_next(GroupRank{to_ask_.front()}, *group_);
    to_ask_.pop_front();
  }

  void receive_piece(const at::Tensor& place, int rank) {
    ask();  // for the one after this
    recv(as_bytes(place), GroupRank{rank}, *group_);
  }

  // A tensor of rank 0 alone is given as it lies.
  at::Tensor receive(const DeclaredTensor& tensor) {
    const std::vector<Piece> pieces = pieces_of(tensor.name);
    for (const TensorShard& part : parts_) {
      if (part.name == tensor.name && part.tensor.sizes() == at::IntArrayRef(tensor.shape) &&
          std::all_of(pieces.begin(), pieces.end(), [](const Piece& piece) { return piece.rank == 0; }))
        return part.tensor.detach().contiguous();
    }
    const at::Tensor whole = at::empty(tensor.shape, at::TensorOptions(dtype_of_word(tensor.dtype)));
    for (const Piece& piece : pieces) {
      const at::Tensor place = part_in(whole, piece.box);
      if (piece.rank == 0) {
        place.copy_(own(tensor.name, piece.box));
      } else if (place.is_contiguous()) {
        receive_piece(place, piece.rank);
      } else {
        const at::Tensor bytes = at::empty(piece.box.sizes, whole.options());
        receive_piece(bytes, piece.rank);
        place.copy_(bytes);
      }
    }
    return whole;
  }

  const std::optional<ProcessGroup> group_;
  const CheckpointRanks ranks_;
  const std::shared_ptr<CheckpointItem> item_;
  const std::vector<TensorShard> parts_;
  SavePlan plan_;
  std::map<std::string, std::vector<Piece>> pieces_;  // by tensor
  std::deque<int> to_ask_;                            // on rank 0: the senders that it has not asked yet
};

std::vector<std::string> order_of(const SafetensorsWriter& writer) {
  std::vector<std::string> names;
  for (const SafetensorsTensor& tensor : writer.tensors()) names.push_back(tensor.name);
  return names;
}

}  // namespace

void write_full_state_dict(const std::string& path, HasCheckpointItem& object,
                           const FullStateDictOptions& options) {
  Gathering gathering(str("write_full_state_dict(", in_quotes(path), ")"), object, options);
  std::optional<SafetensorsWriter> writer;
  const std::vector<std::string> names = gathering.ranks().on_rank_0([&] {
    writer.emplace(path, gathering.entries());
    return json(order_of(*writer));
  });
  gathering.run(
      names, [&](const std::string& /*name*/, const at::Tensor& tensor) { writer->write(bytes_of(tensor)); });
  gathering.ranks().on_rank_0([&]() -> json {
    writer->commit();
    return {};
  });
}

void visit_full_state_dict(HasCheckpointItem& object, const Visit& visit,
                           const FullStateDictOptions& options) {
  Gathering gathering("visit_full_state_dict", object, options);
  std::vector<std::string> names;
  for (const SafetensorsEntry& entry : gathering.entries()) names.push_back(entry.name);
  gathering.run(names, visit);
}

NamedTensors full_state_dict(HasCheckpointItem& object, const FullStateDictOptions& options) {
  NamedTensors all;
  visit_full_state_dict(
      object,
      [&](const std::string& name, const at::Tensor& tensor) { all.emplace_back(name, tensor.clone()); },
      options);
  return all;
}

}  // namespace lockstep

#include "lockstep/checkpoint/prepared_save.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <torch/version.h>

#include <algorithm>
#include <tuple>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/checkpoint/item_names.h"
#include "lockstep/checkpoint/json_values.h"
#include "lockstep/formats/checksum.h"
#include "lockstep/tensor/dtype_words.h"
#include "lockstep/tensor/parted_memory.h"

namespace lockstep {
namespace {

using nlohmann::json;

constexpr std::int64_t FINGERPRINT_BYTES = 1024;  // at each end of a tensor

using Place = std::tuple<const void*, at::ScalarType, std::vector<std::int64_t>, std::vector<std::int64_t>>;
Place place_of(const at::Tensor& tensor) {
  return {tensor.const_data_ptr(), tensor.scalar_type(), tensor.sizes().vec(), tensor.strides().vec()};
}

void expect_dense(const std::string& name, const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.layout() != at::kStrided || tensor.is_quantized() || tensor.is_meta() ||
      checkpoint_dtype_size(dtype_word(tensor.scalar_type())) == 0)
    throw InvalidArgument(
        str("tensor ", in_quotes(name),
            " cannot be saved: ", tensor.defined() ? toString(tensor.scalar_type()) : "it is undefined",
            tensor.defined() ? ", or sparse or without memory; only dense tensors can be" : ""));
  refuse_parted("save_checkpoint", name, tensor);
}

DeclaredTensor declared(const std::string& name, const at::Tensor& tensor) {
  return {
      .name = name, .dtype = std::string(dtype_word(tensor.scalar_type())), .shape = tensor.sizes().vec()};
}

// Checksum of the first and last bytes of a contiguous tensor. These bytes differ if ranks have trained
// apart.
std::string fingerprint(const at::Tensor& tensor) {
  if (!tensor.is_contiguous() || tensor.numel() == 0 || tensor.is_conj() || tensor.is_neg()) return {};
  const std::int64_t some =
      std::min(tensor.numel(), FINGERPRINT_BYTES / static_cast<std::int64_t>(tensor.itemsize()));
  const at::Tensor flat = tensor.detach().view(-1);
  Checksum checksum;
  for (const std::int64_t first : {std::int64_t{0}, tensor.numel() - some}) {
    const at::Tensor end = flat.narrow(0, first, some).cpu();
    checksum.add({static_cast<const std::byte*>(end.const_data_ptr()), end.nbytes()});
  }
  return checksum.text();
}

std::string bits_of(const at::Tensor& tensor) {
  const at::Tensor bytes = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous();
  return checksum_of({static_cast<const std::byte*>(bytes.const_data_ptr()), bytes.nbytes()});
}

// The tensors and values that this rank holds, by kind.
struct Inventory {
  NamedTensors replicated;
  NamedTensors first_rank;  // rank 0's, unless those of a rank differ
  NamedTensors own;         // this rank's own, under names of its own
  std::vector<TensorShard> shards;
  std::map<std::string, std::string> kinds;
  std::map<std::string, json> values, rank_values;
  std::map<std::string, std::string> aliases;
};

class Collector {
 public:
  explicit Collector(int rank) : rank_(rank) {}

  Inventory collect(CheckpointState& state) {
    for (const CheckpointState::Entry& entry : state.entries()) {
      ItemContents contents = entry.item->contents();
      inventory_.kinds[entry.name] = std::string(entry.item->kind());
      add(entry.name, contents.tensors, inventory_.replicated);
      add(entry.name, contents.first_rank_tensors, inventory_.first_rank);
      for (auto& [name, tensor] : contents.rank_tensors) {
        const std::string full = rank_tensor_name(entry.name, rank_, name);
        expect_dense(full, tensor);
        inventory_.own.emplace_back(full, tensor);
      }
      for (TensorShard& shard : contents.shards) {
        shard.name = tensor_name(entry.name, shard.name);
        expect_dense(shard.name, shard.tensor);
        inventory_.shards.push_back(std::move(shard));
      }
      if (contents.value) inventory_.values[entry.name] = value_to_text(*contents.value, entry.name);
      if (contents.rank_value)
        inventory_.rank_values[entry.name] = value_to_text(*contents.rank_value, entry.name);
    }
    return std::move(inventory_);
  }

 private:
  void add(const std::string& item, const NamedTensors& tensors, NamedTensors& list) {
    for (const auto& [name, tensor] : tensors) {
      const std::string full = tensor_name(item, name);
      expect_dense(full, tensor);
      const auto [known, is_new] = places_.emplace(place_of(tensor), full);
      if (is_new || tensor.numel() == 0) {
        list.emplace_back(full, tensor);
      } else {
        inventory_.aliases[full] = known->second;
      }
    }
  }

  const int rank_;
  Inventory inventory_;
  std::map<Place, std::string> places_;
};

// Returns what a rank holds that should be equal on all ranks, by part; one name per entry.
std::map<std::string, json> alike_parts(const Inventory& inventory) {
  std::map<std::string, json> parts = {{"kinds", inventory.kinds},
                                       {"aliases", inventory.aliases},
                                       {"values", json::object()},
                                       {"tensors", json::object()},
                                       {"buffers", json::object()}};
  for (const auto& [name, value] : inventory.values) parts["values"][name] = checksum_of(value.dump());
  for (const auto& [name, tensor] : inventory.replicated) {
    const DeclaredTensor one = declared(name, tensor);
    parts["tensors"][name] = {one.dtype, one.shape, fingerprint(tensor)};
  }
  for (const auto& [name, tensor] : inventory.first_rank) {
    const DeclaredTensor one = declared(name, tensor);
    parts["buffers"][name] = {one.dtype, one.shape, bits_of(tensor)};
  }
  return parts;
}

// The first message of a rank: checksums of those parts, and in full the parts that may differ by rank.
json declaration_of(const Inventory& inventory, const std::map<std::string, json>& parts) {
  json own = {{"alike", json::object()},
              {"shards", json::array()},
              {"own", json::array()},
              {"rank_values", inventory.rank_values}};
  for (const auto& [part, entries] : parts) own["alike"][part] = checksum_of(entries.dump());
  for (const auto& [name, tensor] : inventory.own)
    own["own"].push_back({name, std::string(dtype_word(tensor.scalar_type())), tensor.sizes().vec()});
  for (const TensorShard& shard : inventory.shards)
    own["shards"].push_back({shard.name, std::string(dtype_word(shard.tensor.scalar_type())), shard.shape,
                             shard.offsets, shard.tensor.sizes().vec()});
  return own;
}

// Returns a part of all ranks in full if their checksums of it differ; else nothing. Collective.
std::vector<json> differing_part(const CheckpointRanks& ranks, const std::vector<json>& declarations,
                                 const std::string& part, const json& mine) {
  const auto differs = [&](const json& one) {
    return one.at("alike").at(part) != declarations[0].at("alike").at(part);
  };
  return std::any_of(declarations.begin(), declarations.end(), differs) ? ranks.all_gather(mine)
                                                                        : std::vector<json>();
}

// Returns the first name that only one of them has, or whose values differ.
std::string difference(const json& ours, const json& theirs) {
  for (const auto& [name, value] : ours.items())
    if (!theirs.contains(name) || theirs.at(name) != value) return name;
  for (const auto& [name, value] : theirs.items())
    if (!ours.contains(name)) return name;
  return {};
}

void expect_alike(const CheckpointRanks& ranks, const std::vector<json>& declarations,
                  const std::map<std::string, json>& parts) {
  struct Part {
    const char* name;
    const char* words;
  };
  constexpr Part PARTS[] = {{"kinds", "add different items: "},
                            {"values", "hold different values of "},
                            {"aliases", "share the memory of different tensors: "},
                            {"tensors", "hold different dtypes, shapes or values of "}};
  for (const auto& [part, words] : PARTS) {
    const std::vector<json> all = differing_part(ranks, declarations, part, parts.at(part));
    for (std::size_t rank = 1; rank < all.size(); ++rank)
      if (const std::string name = difference(all[0], all[rank]); !name.empty())
        throw Mismatch(str(ranks.call(), ": rank 0 and rank ", rank, ' ', words, in_quotes(name),
                           "; what differs from rank to rank is added with add_each_rank(), and models that "
                           "should be equal and are not have trained apart"));
  }
}

std::vector<DeclaredShard> shards_of(const json& declaration) {
  std::vector<DeclaredShard> shards;
  for (const json& own : declaration.at("own")) {
    DeclaredTensor tensor{own.at(0), own.at(1), own.at(2)};
    const Box whole = box_of(tensor.shape);
    shards.push_back({std::move(tensor), whole});
  }
  for (const json& shard : declaration.at("shards"))
    shards.push_back({{shard.at(0), shard.at(1), shard.at(2)}, {shard.at(3), shard.at(4)}});
  return shards;
}

// Buffers are rank 0's, and another rank's own if they differ. `all` is empty if no rank's differ.
void settle_buffers(Inventory& inventory, std::vector<json>& declarations, const json& mine,
                    const std::vector<json>& all, int rank) {
  for (std::size_t r = 0; r < declarations.size(); ++r)
    for (const auto& [name, buffer] : (all.empty() ? mine : all[r]).items()) {
      const json& first = all.empty() ? mine : all[0];
      if (r > 0 && first.contains(name) && first.at(name) == buffer) continue;
      const std::string full = r == 0 ? name : rank_name_of(name, static_cast<int>(r));
      declarations[r]["own"].push_back({full, buffer.at(0), buffer.at(1)});
      if (static_cast<int>(r) != rank) continue;
      const auto found = std::find_if(inventory.first_rank.begin(), inventory.first_rank.end(),
                                      [&, key = name](const auto& entry) { return entry.first == key; });
      inventory.own.emplace_back(full, found->second);
    }
}

at::Tensor slice(const at::Tensor& tensor, const std::vector<std::int64_t>& base, const Box& box) {
  at::Tensor part = tensor.detach();
  for (std::size_t d = 0; d < box.sizes.size(); ++d)
    part = part.narrow(static_cast<std::int64_t>(d), box.offsets[d] - base[d], box.sizes[d]);
  return part;
}

// Returns the memory of each planned piece of this rank.
std::vector<PieceToWrite> pieces_of(const std::vector<PlannedPiece>& planned, const Inventory& inventory) {
  std::map<std::string, const at::Tensor*> whole;
  for (const NamedTensors* list : {&inventory.replicated, &inventory.own})
    for (const auto& [name, tensor] : *list) whole[name] = &tensor;
  std::vector<PieceToWrite> pieces;
  for (const PlannedPiece& piece : planned) {
    if (const auto found = whole.find(piece.tensor); found != whole.end()) {
      pieces.push_back(
          {piece, slice(*found->second, std::vector<std::int64_t>(piece.box.sizes.size()), piece.box)});
      continue;
    }
    const auto holds = [&](const TensorShard& shard) {
      if (shard.name != piece.tensor) return false;
      for (std::size_t d = 0; d < shard.offsets.size(); ++d)
        if (piece.box.offsets[d] < shard.offsets[d] ||
            piece.box.offsets[d] + piece.box.sizes[d] >
                shard.offsets[d] + shard.tensor.size(static_cast<std::int64_t>(d)))
          return false;
      return true;
    };
    const auto shard = std::find_if(inventory.shards.begin(), inventory.shards.end(), holds);
    if (shard == inventory.shards.end())
      throw InternalError(str("no memory behind a piece of ", piece.tensor));
    pieces.push_back({piece, slice(shard->tensor, shard->offsets, piece.box)});
  }
  return pieces;
}

CheckpointIndex index_of(const Inventory& inventory, const SavePlan& plan, const std::vector<json>& all,
                         const SaveCheckpointOptions& options) {
  CheckpointIndex index;
  index.step = options.step;
  index.ranks = static_cast<int>(all.size());
  index.made_with = made_with();
  index.items = inventory.kinds;
  for (const DeclaredTensor& tensor : plan.tensors)
    index.tensors[tensor.name] = {tensor.dtype, tensor.shape, {}};
  *index.values = inventory.values;
  for (const auto& [name, value] : inventory.rank_values)
    for (const json& one : all) (*index.rank_values)[name].push_back(one.at("rank_values").at(name));
  return index;
}

}  // namespace

std::map<std::string, std::string> made_with() {
  return {{"libtorch", TORCH_VERSION},
          {"cpu", at::get_cpu_capability()},
          {"threads", std::to_string(at::get_num_threads())}};
}

PreparedSave prepare_save(const CheckpointRanks& ranks, const std::string& folder, CheckpointState& state,
                          const SaveCheckpointOptions& options) {
  Inventory inventory;
  std::map<std::string, json> parts;
  std::vector<json> declarations = ranks.all_try([&] {
    if (options.step < 0) throw InvalidArgument(str("the step is ", options.step, "; it must be at least 0"));
    inventory = Collector(ranks.rank()).collect(state);
    parts = alike_parts(inventory);
    parts["values"]["options of the save"] = {folder, options.step};
    return declaration_of(inventory, parts);
  });
  expect_alike(ranks, declarations, parts);
  const std::vector<json> buffers = differing_part(ranks, declarations, "buffers", parts.at("buffers"));
  settle_buffers(inventory, declarations, parts.at("buffers"), buffers, ranks.rank());

  PreparedSave save;
  // Depends only on facts that all ranks have, so it fails on all of them or on none.
  try {
    std::vector<DeclaredTensor> replicated;
    for (const auto& [name, tensor] : inventory.replicated) replicated.push_back(declared(name, tensor));
    std::vector<std::vector<DeclaredShard>> shards;
    for (const json& one : declarations) shards.push_back(shards_of(one));
    const SavePlan plan = save_plan(replicated, shards);
    save.index = index_of(inventory, plan, declarations, options);
    save.pieces = pieces_of(plan.of_rank[static_cast<std::size_t>(ranks.rank())], inventory);
  } catch (const Error& error) {
    throw_error(error.code(), str(ranks.call(), ": ", error.what()));
  }
  save.folder = folder;
  save.options = options;
  save.aliases = std::move(inventory.aliases);
  return save;
}

}  // namespace lockstep

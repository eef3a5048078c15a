#include "lockstep/checkpoint/load_checkpoint.h"

#include <algorithm>
#include <set>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/checkpoint/checkpoint_ranks.h"
#include "lockstep/checkpoint/item_names.h"
#include "lockstep/checkpoint/json_values.h"
#include "lockstep/checkpoint/load_plan.h"
#include "lockstep/checkpoint/piece_reader.h"
#include "lockstep/formats/checkpoint_folder.h"
#include "lockstep/os/folder.h"
#include "lockstep/os/plain_file.h"
#include "lockstep/tensor/dtype_words.h"

namespace lockstep {
namespace {

using nlohmann::json;

constexpr std::size_t MOST_SHOWN = 20;  // problems, or damaged places, in one error

std::string listed(const std::vector<std::string>& texts) {
  std::string list;
  for (std::size_t i = 0; i < std::min(texts.size(), MOST_SHOWN); ++i) list += str("\n  ", texts[i]);
  return texts.size() > MOST_SHOWN ? str(list, "\n  and ", texts.size() - MOST_SHOWN, " more") : list;
}

// Returns the paths to try, in order.
json candidates(const std::string& folder, const LoadCheckpointOptions& options) {
  if (is_file(str(folder, '/', CHECKPOINT_INDEX_NAME))) return {folder};
  json paths = json::array();
  std::vector<CheckpointEntry> entries = list_checkpoints(folder);
  std::reverse(entries.begin(), entries.end());
  for (const CheckpointEntry& entry : entries)
    if (!options.step || entry.step == *options.step) paths.push_back(entry.path);
  return paths;
}

struct Found {
  std::string path;
  CheckpointIndex index;
};

class Search {
 public:
  Search(const CheckpointRanks& ranks, const std::string& folder, const LoadCheckpointOptions& options)
      : ranks_(ranks), folder_(folder), options_(options) {}

  std::optional<Found> run() {
    const json paths = ranks_.on_rank_0([&] { return candidates(folder_, options_); });
    if (paths.empty() && options_.missing_ok) return std::nullopt;
    if (paths.empty())
      throw InvalidArgument(str(ranks_.call(), ": there is no checkpoint",
                                options_.step ? str(" of step ", *options_.step) : "", " in ",
                                in_quotes(folder_)));
    for (const json& path : paths) {
      if (auto found = look_at(path.get<std::string>())) return found;
      if (options_.when_damaged == WhenDamaged::FAIL) break;
    }
    throw FormatError(
        str(ranks_.call(), ": no whole checkpoint in ", in_quotes(folder_), ':', listed(damaged_)));
  }

  std::vector<std::string> damaged() const { return damaged_; }

 private:
  std::optional<Found> look_at(const std::string& path) {
    const json read = ranks_.on_rank_0([&]() -> json {
      try {
        (void)read_checkpoint_index(path);  // its errors name the file
        return {{"text", read_plain_file(str(path, '/', CHECKPOINT_INDEX_NAME))}};
      } catch (const Error& error) {
        return {{"damage", error.what()}};
      }
    });
    if (read.contains("damage")) return pass_over(path, read.at("damage").get<std::string>());
    Found found{path, parse_checkpoint_index(read.at("text").get<std::string>())};
    const std::vector<json> all = ranks_.all_try([&] { return my_share_of_damage(found); });
    for (const json& one : all)
      if (!one.empty()) return pass_over(path, one.at(0).get<std::string>());
    return found;
  }

  json my_share_of_damage(const Found& found) const {
    json texts = json::array();
    const auto mine = [&](std::size_t piece) {
      return static_cast<int>(piece % static_cast<std::size_t>(ranks_.size())) == ranks_.rank();
    };
    for (const CheckpointDamage& damage : find_damage(found.path, found.index, mine))
      texts.push_back(str(damage.file,
                          damage.tensor.empty() ? "" : str(", tensor ", in_quotes(damage.tensor)), ": ",
                          damage.text));
    return texts;
  }

  std::nullopt_t pass_over(const std::string& path, const std::string& why) {
    damaged_.push_back(str(path, ": ", why));
    if (ranks_.rank() == 0) log(LogLevel::WARNING, str("a checkpoint is damaged, ", damaged_.back()));
    return std::nullopt;
  }

  const CheckpointRanks& ranks_;
  const std::string& folder_;
  const LoadCheckpointOptions& options_;
  std::vector<std::string> damaged_;
};

WantedTensor wanted(const std::string& item, const std::string& name, const at::Tensor& tensor,
                    std::vector<std::int64_t> shape) {
  return {tensor_name(item, name), std::string(dtype_word(tensor.scalar_type())), std::move(shape)};
}

WantedItem wanted_item(const std::string& name, const ItemContents& contents) {
  WantedItem item{.name = name,
                  .in_place = contents.in_place,
                  .tensors = {},
                  .has_value = contents.value.has_value(),
                  .has_rank_value = contents.rank_value.has_value()};
  if (!contents.in_place) return item;
  for (const NamedTensors* list : {&contents.tensors, &contents.first_rank_tensors})
    for (const auto& [key, tensor] : *list)
      item.tensors.push_back(wanted(name, key, tensor, tensor.sizes().vec()));
  for (const TensorShard& shard : contents.shards)
    item.tensors.push_back(wanted(name, shard.name, shard.tensor, shard.shape));
  return item;
}

// Fills a state from one checkpoint. Its names are known to fit.
class Filling {
 public:
  Filling(const CheckpointRanks& ranks, const Found& found, std::vector<std::string>& notes)
      : ranks_(ranks), index_(found.index), reader_(found.path, found.index), notes_(notes) {}

  void fill(const CheckpointState::Entry& entry, const ItemContents& contents) {
    if (!index_.items.contains(entry.name)) return;  // not strict
    if (contents.in_place) fill_in_place(entry.name, contents);
    const LoadedItem loaded = loaded_item(entry.name, *entry.item, !contents.in_place);
    const bool is_each_ranks = contents.rank_value || !contents.rank_tensors.empty();
    if (is_each_ranks && ranks_.size() != index_.ranks)
      note(str("item ", in_quotes(entry.name), " is each rank's own: ", index_.ranks, " ranks saved it, and ",
               ranks_.size(), " load it"));
    try {
      entry.item->load(loaded);
    } catch (const json::exception& error) {
      throw FormatError(
          str("the value of item ", in_quotes(entry.name), " is of another type: ", error.what()));
    }
  }

 private:
  void fill_in_place(const std::string& item, const ItemContents& contents) {
    const auto fill_whole = [&](const std::string& name, const at::Tensor& tensor) {
      if (index_.tensors.contains(name)) reader_.fill(tensor, name, box_of(tensor.sizes().vec()));
    };
    for (const auto& [key, tensor] : contents.tensors) fill_whole(tensor_name(item, key), tensor);
    for (const auto& [key, tensor] : contents.first_rank_tensors) {
      const std::string name = tensor_name(item, key);
      const std::string own = rank_name_of(name, ranks_.rank());
      const bool has_own = ranks_.size() == index_.ranks && index_.tensors.contains(own);
      fill_whole(has_own ? own : name, tensor);
    }
    for (const TensorShard& shard : contents.shards) {
      const std::string name = tensor_name(item, shard.name);
      if (index_.tensors.contains(name))
        reader_.fill(shard.tensor, name, {shard.offsets, shard.tensor.sizes().vec()});
    }
  }

  LoadedItem loaded_item(const std::string& item, const CheckpointItem& wanting, bool has_tensors) {
    LoadedItem loaded{.rank = ranks_.rank(), .ranks = ranks_.size(), .saved_ranks = index_.ranks};
    loaded.note = [this](const std::string& text) { note(text); };
    const std::string own = rank_tensor_name(item, ranks_.rank(), "");
    for (const auto& [name, tensor] : index_.tensors) {
      if (!has_tensors || item_of(name) != item) continue;
      const std::string key = name.substr(std::min(name.size(), item.size() + 1));
      if (!is_of_a_rank(name) && wanting.wants(key)) loaded.tensors.emplace_back(key, reader_.make(name));
      if (name == own || name.starts_with(own + "."))
        loaded.rank_tensors.emplace_back(name.substr(std::min(name.size(), own.size() + 1)),
                                         reader_.make(name));
    }
    if (index_.values->contains(item)) loaded.value = value_from_text(index_.values->at(item));
    if (index_.rank_values->contains(item) && ranks_.rank() < index_.ranks)
      loaded.rank_value =
          value_from_text(index_.rank_values->at(item).at(static_cast<std::size_t>(ranks_.rank())));
    return loaded;
  }

  void note(const std::string& text) {
    if (std::find(notes_.begin(), notes_.end(), text) == notes_.end()) notes_.push_back(text);
  }

  const CheckpointRanks& ranks_;
  const CheckpointIndex& index_;
  PieceReader reader_;
  std::vector<std::string>& notes_;
};

// Returns the conditions of the bits that differ from those at the save.
std::vector<std::string> differences_of_machines(const CheckpointIndex& index) {
  std::vector<std::string> notes;
  for (const auto& [what, now] : made_with()) {
    const auto then = index.made_with.find(what);
    if (then != index.made_with.end() && then->second != now)
      notes.push_back(str(what, " was ", then->second, " when the checkpoint was taken and is ", now,
                          " now: the run goes on, and not with the same bits"));
  }
  return notes;
}

// What a rank wants of a checkpoint. Of items in parts, the ranks tell each other what they have.
struct Wants {
  std::vector<ItemContents> contents;
  std::vector<WantedItem> items;
};

Wants wants_of(const CheckpointRanks& ranks, const CheckpointState& state) {
  Wants wants;
  const std::vector<json> all = ranks.all_try([&] {
    json names = json::object();
    for (const CheckpointState::Entry& entry : state.entries()) {
      wants.contents.push_back(entry.item->contents());
      wants.items.push_back(wanted_item(entry.name, wants.contents.back()));
      if (!wants.contents.back().in_parts) continue;
      for (const WantedTensor& tensor : wants.items.back().tensors) names[entry.name].push_back(tensor.name);
    }
    return names;
  });
  for (const json& names : all)
    for (WantedItem& item : wants.items)
      if (names.contains(item.name)) item.of_others.merge(names.at(item.name).get<std::set<std::string>>());
  return wants;
}

void expect_fitting(const std::vector<WantedItem>& items, const Found& found, bool strict) {
  const std::vector<std::string> problems = problems_of(items, found.index, strict);
  if (!problems.empty())
    throw InvalidArgument(
        str("checkpoint ", in_quotes(found.path), " does not fit the state:", listed(problems)));
}

}  // namespace

std::optional<LoadedCheckpoint> load_checkpoint(const std::string& folder, CheckpointState& state,
                                                const LoadCheckpointOptions& options) {
  const CheckpointRanks ranks("load_checkpoint", checkpoint_group(options.process_group, "load_checkpoint"));
  Search search(ranks, folder, options);
  const std::optional<Found> found = search.run();
  if (!found) return std::nullopt;
  LoadedCheckpoint loaded{.path = found->path,
                          .step = found->index.step,
                          .saved_ranks = found->index.ranks,
                          .damaged = search.damaged(),
                          .notes = differences_of_machines(found->index)};
  const Wants wants = wants_of(ranks, state);
  const std::vector<ItemContents>& contents = wants.contents;
  ranks.all_try([&] {
    expect_fitting(wants.items, *found, options.strict);
    return json();
  });
  ranks.all_try([&] {
    Filling filling(ranks, *found, loaded.notes);
    for (std::size_t i = 0; i < contents.size(); ++i) filling.fill(state.entries()[i], contents[i]);
    return json();
  });
  if (ranks.rank() == 0)
    for (const std::string& note : loaded.notes) log(LogLevel::WARNING, str("load_checkpoint: ", note));
  return loaded;
}

}  // namespace lockstep

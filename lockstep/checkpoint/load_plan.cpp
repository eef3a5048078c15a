#include "lockstep/checkpoint/load_plan.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "lockstep/base/nearest.h"
#include "lockstep/base/str.h"
#include "lockstep/checkpoint/item_names.h"

namespace lockstep {
namespace {

constexpr std::size_t MOST_SEARCHED = 20;  // names for which the nearest one is looked for

std::string in_brackets(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t size : shape) text += str(text.empty() ? "" : ", ", size);
  return str('[', text, ']');
}

class Comparison {
 public:
  Comparison(const CheckpointIndex& index, bool strict) : index_(index), strict_(strict) {
    for (const auto& [name, tensor] : index.tensors) names_of_[item_of(name)].push_back(name);
    for (const auto& [name, kind] : index.items) items_.push_back(name);
  }

  void compare(const WantedItem& item) {
    const auto found = std::find(items_.begin(), items_.end(), item.name);
    if (found == items_.end()) return missing("item", item.name, items_);
    if (item.has_value != index_.values->contains(item.name) ||
        item.has_rank_value != index_.rank_values->contains(item.name))
      add(str("item ", in_quotes(item.name), " is ", index_.items.at(item.name),
              " in the checkpoint and something else in the state"));
    if (!item.in_place) return;
    std::set<std::string> wanted = item.of_others;
    for (const WantedTensor& tensor : item.tensors) {
      wanted.insert(tensor.name);
      compare(tensor);
    }
    for (const std::string& name : names_of_[item.name])
      if (strict_ && !is_of_a_rank(name) && !wanted.contains(name))
        add(str("tensor ", in_quotes(name), " of the checkpoint is not in the state"));
  }

  void compare_items(const std::vector<WantedItem>& wanted) {
    for (const std::string& name : items_) {
      const bool is_wanted = std::any_of(wanted.begin(), wanted.end(),
                                         [&](const WantedItem& item) { return item.name == name; });
      if (strict_ && !is_wanted) add(str("item ", in_quotes(name), " of the checkpoint is not in the state"));
    }
  }

  std::vector<std::string> problems() { return std::move(problems_); }

 private:
  void compare(const WantedTensor& tensor) {
    const auto found = index_.tensors.find(tensor.name);
    if (found == index_.tensors.end()) return missing("tensor", tensor.name, names_of_[item_of(tensor.name)]);
    if (found->second.shape != tensor.shape)
      add(str("tensor ", in_quotes(tensor.name), " has shape ", in_brackets(found->second.shape),
              " in the checkpoint and ", in_brackets(tensor.shape), " in the state"));
    if (strict_ && found->second.dtype != tensor.dtype)
      add(str("tensor ", in_quotes(tensor.name), " is ", found->second.dtype, " in the checkpoint and ",
              tensor.dtype, " in the state"));
  }

  void missing(const char* what, const std::string& name, const std::vector<std::string>& candidates) {
    if (!strict_) return;
    const std::string close = searched_++ < MOST_SEARCHED ? nearest(name, candidates) : "";
    add(str(what, ' ', in_quotes(name), " is not in the checkpoint",
            close.empty() ? "" : str(" (did you mean ", in_quotes(close), "?)")));
  }

  void add(std::string problem) { problems_.push_back(std::move(problem)); }

  const CheckpointIndex& index_;
  const bool strict_;
  std::vector<std::string> items_;
  std::map<std::string, std::vector<std::string>> names_of_;  // by item
  std::size_t searched_ = 0;
  std::vector<std::string> problems_;
};

}  // namespace

std::vector<std::string> problems_of(const std::vector<WantedItem>& items, const CheckpointIndex& index,
                                     bool strict) {
  Comparison comparison(index, strict);
  for (const WantedItem& item : items) comparison.compare(item);
  comparison.compare_items(items);
  return comparison.problems();
}

}  // namespace lockstep

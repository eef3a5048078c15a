#include "lockstep/parallel/zero/partitioned_state.h"

#include <ATen/ops/tensor.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/optim/state_entries.h"

namespace lockstep {
namespace {

using optim::StateEntry;
using Values = std::map<std::string, at::Tensor>;

[[noreturn]] void refuse_state(const std::string& reason) {
  throw InvalidArgument(lockstep::str("ZeroRedundancyOptimizer::load_state_dict: ", reason));
}

std::string state_name(std::size_t number, const std::string& key) {
  return lockstep::str("state.", number, '.', key);
}

std::vector<std::size_t> in_one_list(const NumbersByGroup& numbers) {
  std::vector<std::size_t> all;
  for (const auto& group : numbers) all.insert(all.end(), group.begin(), group.end());
  return all;
}

// Returns the `count` numbers from `first` on.
at::Tensor numbers_from(std::size_t first, std::size_t count) {
  std::vector<std::int64_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), static_cast<std::int64_t>(first));
  return at::tensor(numbers, at::kLong);
}

// Returns the numbers that the state uses for the parameters of each group.
NumbersByGroup saved_numbers(const NamedTensors& whole, const ShapesByGroup& shapes) {
  std::map<std::size_t, at::Tensor> lists;
  std::size_t groups = 0;
  for (const auto& [name, tensor] : whole) {
    const StateEntry entry = optim::entry_of(name);
    if (!entry.is_option) continue;
    const std::size_t g = optim::number_of_owner(entry, name);
    groups = std::max(groups, g + 1);
    if (entry.key == "params") lists[g] = tensor;
  }
  if (groups != shapes.size())
    refuse_state(lockstep::str("the state has ", groups, " parameter groups, the optimiser ", shapes.size()));
  NumbersByGroup numbers(groups);
  for (std::size_t g = 0; g < groups; ++g) {
    const std::int64_t count = lists[g].defined() ? lists[g].numel() : 0;
    if (count != static_cast<std::int64_t>(shapes[g].size()))
      refuse_state(lockstep::str("group ", g, " has ", count, " parameters in the state and ",
                                 shapes[g].size(), " here"));
    if (count == 0) continue;
    const at::Tensor flat = lists[g].to(at::kLong).reshape({-1});
    for (std::int64_t i = 0; i < count; ++i)
      numbers[g].push_back(static_cast<std::size_t>(flat[i].item<std::int64_t>()));
  }
  return numbers;
}

void expect_fitting(std::size_t number, const Values& values, const std::vector<std::int64_t>& shape) {
  for (const auto& [key, value] : values)
    if (value.dim() != 0 && value.sizes() != at::IntArrayRef(shape))
      refuse_state(lockstep::str(printable(state_name(number, key)), " has shape ", value.sizes(),
                                 " and the parameter here ", at::IntArrayRef(shape)));
}

}  // namespace

NamedTensors state_of_parameters(const NamedTensors& local, const NumbersByGroup& mine) {
  const std::vector<std::size_t> numbers = in_one_list(mine);
  NamedTensors state;
  for (const auto& [name, tensor] : local) {
    const StateEntry entry = optim::entry_of(name);
    if (entry.is_option) continue;
    state.emplace_back(state_name(numbers.at(optim::number_of_owner(entry, name)), entry.key), tensor);
  }
  return state;
}

NamedTensors options_of_groups(const NamedTensors& tensors, const std::vector<std::size_t>& group_sizes) {
  NamedTensors renumbered;
  for (const auto& [name, tensor] : tensors) {
    const StateEntry entry = optim::entry_of(name);
    if (entry.is_option && entry.key != "params") renumbered.emplace_back(name, tensor);
  }
  std::size_t first = 0;
  for (std::size_t g = 0; g < group_sizes.size(); ++g) {
    renumbered.emplace_back(lockstep::str("param_groups.", g, ".params"),
                            numbers_from(first, group_sizes[g]));
    first += group_sizes[g];
  }
  return renumbered;
}

NamedTensors local_part(const NamedTensors& whole, const ShapesByGroup& shapes, const NumbersByGroup& mine) {
  if (!optim::is_by_number(whole))
    refuse_state(
        "the state is not by number (it has no param_groups.0.params); a state by parameter name "
        "is loaded by an optimiser with names, whose parameters are not shared out");
  std::map<std::size_t, Values> states;  // by the number in the state
  for (const auto& [name, tensor] : whole) {
    const StateEntry entry = optim::entry_of(name);
    if (!entry.is_option) states[optim::number_of_owner(entry, name)][entry.key] = tensor;
  }
  const NumbersByGroup saved = saved_numbers(whole, shapes);
  const std::vector<std::size_t> owned = in_one_list(mine);
  NamedTensors part;
  std::size_t number = 0;
  for (std::size_t g = 0; g < saved.size(); ++g) {
    for (std::size_t i = 0; i < saved[g].size(); ++i, ++number) {
      const auto found = states.find(saved[g][i]);
      if (found == states.end()) continue;
      expect_fitting(found->first, found->second, shapes[g][i]);
      const auto place = std::find(owned.begin(), owned.end(), number);
      for (const auto& [key, value] : found->second)
        if (place != owned.end())
          part.emplace_back(state_name(static_cast<std::size_t>(place - owned.begin()), key), value);
      states.erase(found);
    }
  }
  if (!states.empty())
    refuse_state(
        lockstep::str("there is state of parameter ", states.begin()->first, ", which no group has"));
  std::vector<std::size_t> sizes;
  for (const auto& group : mine) sizes.push_back(group.size());
  NamedTensors options = options_of_groups(whole, sizes);
  part.insert(part.end(), options.begin(), options.end());
  return part;
}

bool is_needed(const std::string& entry, const NumbersByGroup& mine) {
  const StateEntry parts = optim::entry_of(entry);
  if (parts.is_option) return true;
  const std::size_t number = optim::number_of_owner(parts, entry);
  return std::any_of(mine.begin(), mine.end(), [&](const auto& group) {
    return std::find(group.begin(), group.end(), number) != group.end();
  });
}

}  // namespace lockstep

#include "lockstep/tensor/copy_state_dict.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

constexpr std::size_t MOST_NAMES_SHOWN = 10;

std::string name_list(const std::vector<std::string>& names) {
  std::string list;
  for (std::size_t i = 0; i < std::min(names.size(), MOST_NAMES_SHOWN); ++i)
    list += str(i > 0 ? ", " : "", in_quotes(names[i]));
  return names.size() > MOST_NAMES_SHOWN ? str(list, " and ", names.size() - MOST_NAMES_SHOWN, " more")
                                         : list;
}

using MemoryOfTensor = std::tuple<const void*, std::vector<std::int64_t>, std::vector<std::int64_t>>;
MemoryOfTensor place_of(const at::Tensor& tensor) {
  return {tensor.const_data_ptr(), tensor.sizes().vec(), tensor.strides().vec()};
}

LoadStateDictResult compare_names(const NamedTensors& targets,
                                  const std::map<std::string, at::Tensor>& values) {
  std::map<MemoryOfTensor, bool> is_filled;
  std::map<std::string, bool> is_known;
  for (const auto& [name, tensor] : targets) {
    is_known[name] = true;
    is_filled[place_of(tensor)] |= values.contains(name);
  }
  LoadStateDictResult result;
  for (const auto& [name, tensor] : targets)
    if (!is_filled[place_of(tensor)]) result.missing.push_back(name);
  for (const auto& [name, value] : values)
    if (!is_known.contains(name)) result.unexpected.push_back(name);
  return result;
}

std::vector<std::string> shape_differences(const NamedTensors& targets,
                                           const std::map<std::string, at::Tensor>& values) {
  std::vector<std::string> differences;
  for (const auto& [name, tensor] : targets) {
    const auto found = values.find(name);
    if (found != values.end() && found->second.sizes() != tensor.sizes())
      differences.push_back(lockstep::str(name, " has shape ", found->second.sizes(), " in the file and ",
                                          tensor.sizes(), " in the model"));
  }
  return differences;
}

}  // namespace

NamedTensors without_wrapper_prefix(NamedTensors values) {
  const bool all_have_it = std::all_of(
      values.begin(), values.end(), [](const auto& item) { return item.first.starts_with(WRAPPER_PREFIX); });
  if (all_have_it)
    for (auto& [name, value] : values) name.erase(0, WRAPPER_PREFIX.size());
  return values;
}

LoadStateDictResult copy_state_dict(const NamedTensors& targets,
                                    const std::map<std::string, at::Tensor>& values,
                                    const std::string& source, const LoadStateDictOptions& options) {
  LoadStateDictResult result = compare_names(targets, values);
  std::string problems;
  const auto add = [&](const char* what, const std::vector<std::string>& names) {
    if (!names.empty()) problems += str(problems.empty() ? "" : "; ", what, name_list(names));
  };
  if (options.strict) {
    add("missing ", result.missing);
    add("unexpected ", result.unexpected);
  }
  add("different: ", shape_differences(targets, values));
  if (!problems.empty()) throw InvalidArgument(str(source, " does not fit the model: ", problems));

  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : targets)
    if (const auto found = values.find(name); found != values.end()) tensor.copy_(found->second);
  return result;
}

}  // namespace lockstep

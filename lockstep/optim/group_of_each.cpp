#include "lockstep/optim/group_of_each.h"

#include <unordered_map>

#include "lockstep/base/str.h"

namespace lockstep::optim {

GroupOfEach group_of_each(const NamedTensors& parameters,
                          const std::vector<std::vector<at::Tensor>>& groups) {
  std::unordered_map<const void*, std::size_t> group_of;
  std::size_t strangers = 0;  // until they are found among the parameters
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (const at::Tensor& tensor : groups[g]) group_of[tensor.unsafeGetTensorImpl()] = g;
    strangers += groups[g].size();
  }
  GroupOfEach each;
  for (const auto& [name, tensor] : parameters) {
    const auto found = group_of.find(tensor.unsafeGetTensorImpl());
    if (found != group_of.end()) --strangers;
    each.groups.push_back(found == group_of.end() ? groups.size() : found->second);
  }
  if (strangers != 0)
    each.problem =
        str("have ", strangers, " tensors that are not trained parameters of this model, or are there twice");
  return each;
}

}  // namespace lockstep::optim

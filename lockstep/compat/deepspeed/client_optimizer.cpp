#include "lockstep/compat/deepspeed/client_optimizer.h"

#include <algorithm>
#include <iterator>
#include <unordered_set>

namespace lockstep::compat::deepspeed {

std::vector<std::vector<at::Tensor>> trained_in(const std::vector<std::vector<at::Tensor>>& groups) {
  std::vector<std::vector<at::Tensor>> trained;
  for (const std::vector<at::Tensor>& group : groups) {
    std::vector<at::Tensor>& own = trained.emplace_back();
    std::copy_if(group.begin(), group.end(), std::back_inserter(own),
                 [](const at::Tensor& tensor) { return tensor.requires_grad(); });
  }
  return trained;
}

bool are_all_in(const std::vector<std::vector<at::Tensor>>& groups,
                const std::vector<at::Tensor>& parameters) {
  std::unordered_set<const void*> named;
  std::size_t count = 0, trained = 0;
  for (const std::vector<at::Tensor>& group : groups) {
    for (const at::Tensor& tensor : group) named.insert(tensor.unsafeGetTensorImpl());
    count += group.size();
  }
  for (const at::Tensor& parameter : parameters) {
    if (!parameter.requires_grad()) continue;
    ++trained;
    if (!named.contains(parameter.unsafeGetTensorImpl())) return false;
  }
  return count == trained;
}

}  // namespace lockstep::compat::deepspeed

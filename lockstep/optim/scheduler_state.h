// Reads the state dict of a scheduler.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/tensor/named_tensors.h"

namespace lockstep::optim {

class SchedulerState {
 public:
  // Throws InvalidArgument unless it has exactly these names.
  SchedulerState(const NamedTensors& tensors, const std::vector<std::string>& names) {
    for (const auto& [name, tensor] : tensors) tensors_[name] = tensor.to(at::kDouble).contiguous();
    bool fits = tensors_.size() == names.size();
    for (const std::string& name : names) fits = fits && tensors_.contains(name);
    if (fits) return;
    std::string list;
    for (const std::string& name : names) list += lockstep::str(list.empty() ? "" : ", ", name);
    throw InvalidArgument(
        lockstep::str("load_state_dict: not the state of this scheduler, which has ", list));
  }

  std::vector<double> numbers(const std::string& name) const {
    const at::Tensor& tensor = tensors_.at(name);
    return {tensor.const_data_ptr<double>(), tensor.const_data_ptr<double>() + tensor.numel()};
  }
  double number(const std::string& name) const {
    const std::vector<double> all = numbers(name);
    if (all.size() != 1)
      throw InvalidArgument(lockstep::str("load_state_dict: ", name, " has ", all.size(), " values, not 1"));
    return all[0];
  }

 private:
  std::map<std::string, at::Tensor> tensors_;
};

}  // namespace lockstep::optim

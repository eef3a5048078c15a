// ErrorFeedback: keeps what a lossy hook left out of each parameter's gradient, and adds it to the next
// gradient (Seide et al. 2014, Karimireddy et al. 2019). So everything is sent sooner or later, and
// compressed training follows the uncompressed one.
//
//   ErrorFeedback errors;
//   errors.add_to("fc.weight", contribution);          // contribution += what was left out before
//   errors.keep("fc.weight", contribution - sent);
//
// Entries are by parameter name and in the memory order of the gradient, so other buckets do not matter.
// Names of a state dict: "error.fc.weight".
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "lockstep/parallel/gradients/hooks/comm_hook.h"

namespace lockstep {

class ErrorFeedback {
 public:
  // Throws InvalidArgument if the loaded tensor for `name` has another size or dtype.
  void add_to(const std::string& name, const at::Tensor& contribution) const;
  void keep(const std::string& name, const at::Tensor& error) { errors_[name] = error; }
  void drop(const std::string& name) { errors_.erase(name); }

  void save(CommHook::State& state) const;
  // Takes the entry of a state. Returns false if it is not one of these.
  bool load(const std::string& key, const at::Tensor& value);
  void clear() { errors_.clear(); }

 private:
  std::map<std::string, at::Tensor> errors_;  // flat
};

}  // namespace lockstep

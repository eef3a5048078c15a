// What a lossy hook left out of each parameter's gradient, to be added to the next: error feedback (Seide et
// al. 2014, Karimireddy et al. 2019). Whatever is left out is sent later, so compressed training follows the
// uncompressed one.
//
//   ErrorFeedback errors;
//   errors.add_to("fc.weight", contribution);          // contribution += what was left out before
//   errors.keep("fc.weight", contribution - sent);
//
// By parameter name, in the memory order of the gradient: other buckets do not matter. Names of a state dict:
// "error.fc.weight".
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "lockstep/parallel/gradients/hooks/comm_hook.h"

namespace lockstep {

class ErrorFeedback {
 public:
  // Throws InvalidArgument when what was loaded for `name` has another size or dtype.
  void add_to(const std::string& name, const at::Tensor& contribution) const;
  void keep(const std::string& name, const at::Tensor& error) { errors_[name] = error; }
  void drop(const std::string& name) { errors_.erase(name); }

  void save(CommHook::State& state) const;
  // The entry of a state, if it is one of these.
  bool load(const std::string& key, const at::Tensor& value);
  void clear() { errors_.clear(); }

 private:
  std::map<std::string, at::Tensor> errors_;  // flat
};

}  // namespace lockstep

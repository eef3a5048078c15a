// TypedOptimizer<SGDOptions, torch::optim::SGDParamState>: an Optimizer whose options and state have these
// types. Definitions are in typed_optimizer_body.h, for the sources of this room.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/optim/optimizer.h"

namespace lockstep::optim {

template <typename OptionsType, typename StateType> class TypedOptimizer : public Optimizer {
 public:
  void save(torch::serialize::OutputArchive& archive) const final;
  void load(torch::serialize::InputArchive& archive) final;

 protected:
  using Optimizer::Optimizer;

  const OptionsType& options_of(std::size_t group) const;
  // Returns the state of a parameter; makes an empty one the first time.
  StateType& state_of(const at::Tensor& parameter);

  std::unique_ptr<Options> group_options(const Options& options) const final;
  NamedTensors options_as_tensors(const Options& options) const final;
  void set_options(Options& options, const std::map<std::string, at::Tensor>& tensors,
                   const std::string& where) const final;
  NamedTensors state_as_tensors(const State& state) const final;
  std::unique_ptr<State> state_from(const std::map<std::string, at::Tensor>& tensors) const final;

  // Throws InvalidArgument that names the option.
  virtual void check(const OptionsType& options) const = 0;
};

}  // namespace lockstep::optim

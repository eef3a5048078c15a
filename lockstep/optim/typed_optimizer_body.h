// The definitions of TypedOptimizer (typed_optimizer.h).
#pragma once

#include <torch/optim/serialize.h>

#include <optional>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/optim/options_fields.h"
#include "lockstep/optim/step_count.h"
#include "lockstep/optim/typed_optimizer.h"

namespace lockstep::optim {

// The values of a parameter's state with Python's names.
template <typename StateType, typename Visit> void state_fields(StateType& state, const Visit& visit) {
  if constexpr (requires { state.momentum_buffer(); }) {
    visit("momentum_buffer", state.momentum_buffer());
  } else {
    visit("step", state.step());
    visit("exp_avg", state.exp_avg());
    visit("exp_avg_sq", state.exp_avg_sq());
    visit("max_exp_avg_sq", state.max_exp_avg_sq());
  }
}

template <typename O, typename S> const O& TypedOptimizer<O, S>::options_of(std::size_t group) const {
  const auto* options = dynamic_cast<const O*>(&param_groups()[group].options());
  if (options == nullptr)
    throw InvalidArgument(
        lockstep::str(name(), ": the options of group ", group, " are those of another optimiser"));
  return *options;
}

template <typename O, typename S> S& TypedOptimizer<O, S>::state_of(const at::Tensor& parameter) {
  auto& state = state_[parameter.unsafeGetTensorImpl()];
  if (state == nullptr) state = std::make_unique<S>();
  return static_cast<S&>(*state);
}

template <typename O, typename S>
std::unique_ptr<torch::optim::OptimizerOptions> TypedOptimizer<O, S>::group_options(
    const Options& options) const {
  const auto* own = dynamic_cast<const O*>(&options);
  if (own == nullptr)
    throw InvalidArgument(lockstep::str(name(), ": a parameter group has the options of another optimiser"));
  auto merged = std::make_unique<O>(*own);
  merged->inherit(static_cast<const O&>(*defaults_));
  check(*merged);
  return merged;
}

template <typename O, typename S>
NamedTensors TypedOptimizer<O, S>::options_as_tensors(const Options& options) const {
  return tensors_of(static_cast<const O&>(options));
}

template <typename O, typename S>
void TypedOptimizer<O, S>::set_options(Options& options, const std::map<std::string, at::Tensor>& tensors,
                                       const std::string& where) const {
  options_from(tensors, where, static_cast<O&>(options));
  check(static_cast<const O&>(options));
}

template <typename O, typename S>
NamedTensors TypedOptimizer<O, S>::state_as_tensors(const State& state) const {
  NamedTensors tensors;
  state_fields(static_cast<const S&>(state), [&](const char* key, const auto& value) {
    if constexpr (std::is_same_v<std::decay_t<decltype(value)>, at::Tensor>) {
      if (value.defined()) tensors.emplace_back(key, value);
    } else {
      tensors.emplace_back(key, tensor_of_steps(value));
    }
  });
  return tensors;
}

template <typename O, typename S>
std::unique_ptr<torch::optim::OptimizerParamState> TypedOptimizer<O, S>::state_from(
    const std::map<std::string, at::Tensor>& tensors) const {
  auto state = std::make_unique<S>();
  std::size_t found = 0;
  state_fields(*state, [&](const char* key, auto& value) {
    const auto tensor = tensors.find(key);
    if (tensor == tensors.end()) return;
    ++found;
    if constexpr (std::is_same_v<std::decay_t<decltype(value)>, at::Tensor>) {
      value = tensor->second;
    } else {
      value = static_cast<std::int64_t>(tensor->second.template item<double>());
    }
  });
  if (found != tensors.size())
    throw InvalidArgument(lockstep::str("load_state_dict: the file has the state of another optimiser than ",
                                        name(), ": ", printable(tensors.begin()->first), " and others"));
  return state;
}

// Writes the form that libtorch's optimisers write.
template <typename O, typename S>
void TypedOptimizer<O, S>::save(torch::serialize::OutputArchive& archive) const {
  torch::optim::serialize<S, O>(archive, *this);
}

// Checks first. libtorch's own function would have changed some groups before it finds that another does not
// fit.
template <typename O, typename S> void TypedOptimizer<O, S>::load(torch::serialize::InputArchive& archive) {
  torch::serialize::InputArchive state_archive;
  torch::serialize::InputArchive groups_archive;
  archive.read("state", state_archive);
  archive.read("param_groups", groups_archive);
  ska::flat_hash_map<void*, std::unique_ptr<State>> saved;
  std::vector<std::pair<std::vector<std::string>, std::unique_ptr<Options>>> groups;
  torch::optim::detail::serialize<S>(state_archive, saved);
  torch::optim::detail::serialize<O>(groups_archive, groups);
  auto& own = param_groups();
  if (groups.size() != own.size())
    throw InvalidArgument(lockstep::str(name(), "::load: the archive has ", groups.size(),
                                        " parameter groups, the optimiser ", own.size()));
  ska::flat_hash_map<void*, std::unique_ptr<State>> fitting;
  for (std::size_t g = 0; g < own.size(); ++g) {
    const auto& keys = groups[g].first;
    if (keys.size() != own[g].params().size())
      throw InvalidArgument(lockstep::str(name(), "::load: group ", g, " has ", keys.size(),
                                          " parameters in the archive and ", own[g].params().size(),
                                          " here"));
    check(static_cast<const O&>(*groups[g].second));
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const auto found = saved.find(reinterpret_cast<void*>(std::stoull(keys[i])));
      if (found == saved.end()) continue;
      for (const auto& [key, value] : state_as_tensors(*found->second))
        expect_shape(lockstep::str(name(), "::load: ", key), value, own[g].params()[i]);
      fitting[own[g].params()[i].unsafeGetTensorImpl()] = std::move(found->second);
    }
  }
  state_ = std::move(fitting);
  for (std::size_t g = 0; g < own.size(); ++g) own[g].set_options(std::move(groups[g].second));
}

}  // namespace lockstep::optim

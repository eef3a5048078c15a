// The definitions of OptionsOf (options_of.h). Each optimiser's source includes this header and uses
// LOCKSTEP_OPTIONS(its options).
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <torch/serialize/archive.h>

#include <map>
#include <set>
#include <tuple>
#include <type_traits>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/optim/options_of.h"

namespace lockstep::optim {

template <typename Derived>
std::unique_ptr<torch::optim::OptimizerOptions> OptionsOf<Derived>::clone() const {
  return std::make_unique<Derived>(static_cast<const Derived&>(*this));
}

// A field that the archive lacks (an older one, or one of libtorch's) keeps its value.
template <typename Derived> void OptionsOf<Derived>::serialize(torch::serialize::InputArchive& archive) {
  Derived::fields(static_cast<Derived&>(*this), [&](const char* name, auto& value) {
    c10::IValue found;
    if (archive.try_read(name, found)) value = found.to<std::decay_t<decltype(value)>>();
  });
}

template <typename Derived>
void OptionsOf<Derived>::serialize(torch::serialize::OutputArchive& archive) const {
  Derived::fields(static_cast<const Derived&>(*this),
                  [&](const char* name, const auto& value) { archive.write(name, c10::IValue(value)); });
}

template <typename Derived> double OptionsOf<Derived>::get_lr() const {
  return static_cast<const Derived&>(*this).lr();
}
template <typename Derived> void OptionsOf<Derived>::set_lr(double lr) {
  static_cast<Derived&>(*this).lr(lr);
}

template <typename Derived> void OptionsOf<Derived>::inherit(const Derived& defaults) {
  const Derived unset;
  // Walks over three objects at once: fields come in the same order.
  std::vector<const void*> of_unset;
  std::vector<const void*> of_defaults;
  Derived::fields(unset, [&](const char*, const auto& value) { of_unset.push_back(&value); });
  Derived::fields(defaults, [&](const char*, const auto& value) { of_defaults.push_back(&value); });
  std::size_t at = 0;
  Derived::fields(static_cast<Derived&>(*this), [&](const char*, auto& value) {
    using Value = std::decay_t<decltype(value)>;
    if (value == *static_cast<const Value*>(of_unset[at]))
      value = *static_cast<const Value*>(of_defaults[at]);
    ++at;
  });
}

// ---- as tensors of a state dict

inline at::Tensor tensor_of(double value) { return at::scalar_tensor(value, at::kDouble); }
inline at::Tensor tensor_of(bool value) { return at::scalar_tensor(value, at::kBool); }
inline at::Tensor tensor_of(std::int64_t value) { return at::scalar_tensor(value, at::kLong); }
inline at::Tensor tensor_of(const std::tuple<double, double>& pair) {
  return at::tensor({std::get<0>(pair), std::get<1>(pair)}, at::kDouble);
}

template <typename Value> void value_from(const std::string& name, const at::Tensor& tensor, Value& value) {
  constexpr bool pair = std::is_same_v<Value, std::tuple<double, double>>;
  if (tensor.numel() != (pair ? 2 : 1)) {
    throw InvalidArgument(lockstep::str("load_state_dict: ", printable(name), " has ", tensor.numel(),
                                        " values, not ", pair ? 2 : 1));
  }
  const at::Tensor flat = tensor.reshape({-1});
  if constexpr (pair) {
    value = {flat[0].item<double>(), flat[1].item<double>()};
  } else {
    value = flat[0].item<Value>();
  }
}

template <typename Derived> NamedTensors tensors_of(const Derived& options) {
  NamedTensors tensors;
  Derived::fields(options,
                  [&](const char* name, const auto& value) { tensors.emplace_back(name, tensor_of(value)); });
  return tensors;
}

// Entries of groups of Python's optimisers that have no meaning here.
inline const std::set<std::string>& python_only_options() {
  static const std::set<std::string> names = {"foreach",        "fused",      "capturable",
                                              "differentiable", "initial_lr", "decoupled_weight_decay"};
  return names;
}

template <typename Derived>
void options_from(const std::map<std::string, at::Tensor>& tensors, const std::string& where,
                  Derived& options) {
  std::set<std::string> known = python_only_options();
  Derived::fields(options, [&](const char* name, auto& value) {
    known.insert(name);
    const auto found = tensors.find(name);
    if (found != tensors.end()) value_from(where + name, found->second, value);
  });
  for (const auto& [name, tensor] : tensors) {
    if (!known.contains(name)) {
      throw InvalidArgument(
          lockstep::str("load_state_dict: ", printable(where + name), " is not an option of this optimiser"));
    }
  }
}

// NOLINTNEXTLINE(cppcoreguidelines-macro-usage): an explicit instantiation
#define LOCKSTEP_OPTIONS(Options) template class ::lockstep::optim::OptionsOf<Options>

}  // namespace lockstep::optim

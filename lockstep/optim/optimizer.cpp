#include "lockstep/optim/optimizer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/job/unaveraged_steps.h"
#include "lockstep/optim/chunks.h"
#include "lockstep/optim/model_part.h"
#include "lockstep/optim/state_entries.h"

namespace lockstep::optim {
namespace {

// "512 elements from 512 on, of shape [32, 32]"
std::string shape_of(const ParameterShard& shard) {
  const std::string shape = lockstep::str("of shape ", at::IntArrayRef(shard.shape));
  if (shard.tensor.numel() == c10::multiply_integers(shard.shape)) return shape;
  return lockstep::str(shard.tensor.numel(), " elements from ", shard.offset, " on, ", shape);
}

void expect_part(const char* optimizer, const ParameterShard& shard) {
  const std::int64_t whole = c10::multiply_integers(shard.shape);
  const bool is_whole = shard.offset == 0 && shard.tensor.sizes() == at::IntArrayRef(shard.shape);
  const bool is_part =
      shard.tensor.dim() == 1 && shard.offset >= 0 && shard.offset + shard.tensor.numel() <= whole;
  if (is_whole || is_part) return;
  throw InvalidArgument(lockstep::str(optimizer, ": the shard of parameter ", in_quotes(shard.name),
                                      " has shape ", shard.tensor.sizes(), " from element ", shard.offset,
                                      " on, which is not a part of shape ", at::IntArrayRef(shard.shape)));
}

// Whether all parameters are keys of `known`.
template <typename Known> bool have_names(const std::vector<ParamGroup>& groups, const Known& known) {
  for (const ParamGroup& group : groups) {
    for (const at::Tensor& parameter : group.params())
      if (!known.contains(parameter.unsafeGetTensorImpl())) return false;
  }
  return !known.empty();
}

bool are_equal(const std::map<std::string, at::Tensor>& a, const std::map<std::string, at::Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& one, const auto& other) {
    return one.first == other.first && one.second.equal(other.second);
  });
}

}  // namespace

Optimizer::Optimizer(std::unique_ptr<Options> defaults)
    : torch::optim::Optimizer(std::vector<ParamGroup>(), std::move(defaults)) {}

std::string Optimizer::called(const at::Tensor& parameter) const {
  const auto found = known_.find(parameter.unsafeGetTensorImpl());
  if (found != known_.end())
    return lockstep::str("parameter ", in_quotes(found->second.name), ", ", found->second.shape);
  for (std::size_t g = 0; g < param_groups().size(); ++g) {
    const auto& params = param_groups()[g].params();
    for (std::size_t i = 0; i < params.size(); ++i) {
      if (params[i].is_same(parameter))
        return lockstep::str("parameter ", i, " of group ", g, ", of shape ", parameter.sizes());
    }
  }
  return lockstep::str("a parameter of shape ", parameter.sizes());
}

void Optimizer::expect_new(const ParamGroup& group) const {
  std::set<const void*> known;
  for (const ParamGroup& other : param_groups())
    for (const at::Tensor& parameter : other.params()) known.insert(parameter.unsafeGetTensorImpl());
  for (const at::Tensor& parameter : group.params()) {
    if (!parameter.defined())
      throw InvalidArgument(lockstep::str(name(), ": an undefined tensor among the parameters"));
    if (!parameter.is_leaf())
      throw InvalidArgument(
          lockstep::str(name(), ": ", called(parameter), " is the result of an operation, not a leaf"));
    if (!parameter.is_floating_point() && !parameter.is_complex())
      throw InvalidArgument(lockstep::str(name(), ": ", called(parameter), " is ",
                                          toString(parameter.scalar_type()),
                                          "; only floating-point and complex numbers can be trained"));
    if (!known.insert(parameter.unsafeGetTensorImpl()).second)
      throw InvalidArgument(lockstep::str(name(), ": ", called(parameter),
                                          " is there twice; a shared parameter belongs to ",
                                          "one group, once"));
  }
}

void Optimizer::add_param_group(const ParamGroup& group) {
  expect_new(group);
  ParamGroup added(group.params());
  added.set_options(group_options(group.has_options() ? group.options() : *defaults_));
  param_groups_.push_back(std::move(added));
}

void Optimizer::add_param_group(const NamedTensors& parameters) {
  std::vector<ParameterShard> shards;
  for (const auto& [name, tensor] : parameters) {
    const auto shape = tensor.defined() ? tensor.sizes().vec() : std::vector<std::int64_t>();
    shards.push_back({.name = name, .shape = shape, .offset = 0, .tensor = tensor});
  }
  add_param_group(shards);
}

void Optimizer::expect_new_names(const std::vector<ParameterShard>& shards) const {
  std::set<std::string> names;
  for (const auto& [parameter, known] : known_) names.insert(known.name);
  for (const ParameterShard& shard : shards) {
    if (!names.insert(shard.name).second)
      throw InvalidArgument(lockstep::str(name(), ": two parameters have the name ", in_quotes(shard.name),
                                          ", and a state dict would hold one of them; give each its own"));
  }
}

void Optimizer::add_param_group(const std::vector<ParameterShard>& shards) {
  add_param_group(shards, *defaults_);
}

void Optimizer::add_param_group(const std::vector<ParameterShard>& shards, const Options& options) {
  expect_new_names(shards);
  std::unordered_map<const void*, Known> before = known_;
  std::vector<at::Tensor> tensors;
  try {
    for (const ParameterShard& shard : shards) {
      tensors.push_back(shard.tensor);
      if (!shard.tensor.defined()) continue;
      expect_part(name(), shard);
      const std::int64_t reals = shard.tensor.is_complex() ? 2 : 1;
      known_.emplace(shard.tensor.unsafeGetTensorImpl(),
                     Known{.name = shard.name,
                           .dims = static_cast<std::int64_t>(shard.shape.size()),
                           .elements = reals * c10::multiply_integers(shard.shape),
                           .offset = reals * shard.offset,
                           .shape = shape_of(shard),
                           .parameter = shard.parameter});
    }
    add_param_group(ParamGroup(std::move(tensors), options.clone()));
  } catch (...) {
    known_ = std::move(before);  // refused parameters leave no names behind
    throw;
  }
}

void Optimizer::expect_names(const char* function) const {
  if (!have_names(param_groups(), known_))
    throw InvalidArgument(lockstep::str(name(), ": ", function,
                                        " of an optimiser whose parameters have no names; give it "
                                        "named_parameters()"));
}

void Optimizer::reduce_norms_of_pieces(std::unordered_set<std::string> names, const NormReducer& reducer) {
  expect_names("reduce_norms_of_pieces()");
  pieces_ = std::move(names);
  norms_.pieces = reducer;
}

void Optimizer::reduce_norm_of_model(std::unordered_set<std::string> counted, const NormReducer& reducer) {
  expect_names("reduce_norm_of_model()");
  counted_ = std::move(counted);
  norms_.model = reducer;
}

// The tensor that has the marks of model_part.h.
at::Tensor Optimizer::marked(const at::Tensor& key) const {
  const auto known = known_.find(key.unsafeGetTensorImpl());
  return known != known_.end() && known->second.parameter.defined() ? known->second.parameter : key;
}

void Optimizer::expect_norm_of_parameter(const Gradient& gradient) const {
  if (gradient.is_piece || !is_part(marked(gradient.key), ModelPart::PIECE)) return;
  throw InvalidArgument(lockstep::str(
      name(), ": ", called(gradient.key),
      ", is this rank's piece of a tensor-parallel parameter, and a step takes the norm of the whole. Call "
      "tensor_parallel::reduce_norms(optimizer, *net, group) before the first step; on a mesh "
      "GradientNorm::reduce_norms(optimizer)"));
}

void Optimizer::expect_norm_of_model(const std::vector<Gradient>& gradients) const {
  if (!norms_.model.is_local()) return;
  for (const Gradient& gradient : gradients) {
    expect_norm_of_parameter(gradient);
    if (!is_part(marked(gradient.key), ModelPart::STAGE)) continue;
    throw InvalidArgument(lockstep::str(
        name(), ": max_grad_norm is about the gradients of the whole model, and ", called(gradient.key),
        ", belongs to one stage of a pipeline. Call GradientNorm::reduce_norms(optimizer) before the first "
        "step, or leave max_grad_norm infinite and call GradientNorm::clip_grad_norm_()"));
  }
}

void Optimizer::look_up_gradients(GradientLookup lookup) {
  if (lookup && !takes_gradient_parts())
    throw InvalidArgument(lockstep::str(name(), ": needs whole gradients and takes none in parts"));
  lookup_ = std::move(lookup);
}

void Optimizer::keep_state_in(std::shared_ptr<FileMemory> file) {
  if (!state_.empty())
    throw InvalidArgument(lockstep::str(name(),
                                        ": keep_state_in() after a step or a load, which have made state "
                                        "in memory. Call it before"));
  memory_ = StateMemory(std::move(file));
}

void Optimizer::expect_steppable(const at::Tensor& parameter, const at::Tensor& grad) const {
  if (grad.layout() != at::kStrided)
    throw InvalidArgument(
        lockstep::str(name(), ": the gradient of ", called(parameter), ", is ", grad.layout(),
                      "; only dense gradients can be stepped with. Give it to an optimiser of its own ",
                      "(torch::optim::SGD), or make the embedding dense."));
  if (grad.sizes() != parameter.sizes())
    throw InvalidArgument(
        lockstep::str(name(), ": the gradient of ", called(parameter), ", has shape ", grad.sizes()));
}

std::vector<Optimizer::Gradient> Optimizer::gradients() const {
  std::vector<Gradient> found;
  for (std::size_t g = 0; g < param_groups().size(); ++g) {
    for (const at::Tensor& parameter : param_groups()[g].params()) {
      const at::Tensor& grad = parameter.grad();
      const GradientParts* parts = lookup_ && !grad.defined() ? lookup_(parameter) : nullptr;
      if (!grad.defined() && parts == nullptr) continue;
      if (grad.defined()) expect_steppable(parameter, grad);
      Gradient one{.group = g, .key = parameter, .param = real_view(parameter), .parts = parts};
      if (grad.defined()) one.grad = real_view(grad);
      const auto known = known_.find(parameter.unsafeGetTensorImpl());
      one.dims = known == known_.end() ? parameter.dim() : known->second.dims;
      one.elements = known == known_.end() ? one.param.numel() : known->second.elements;
      one.offset = known == known_.end() ? 0 : known->second.offset;
      one.is_piece = known != known_.end() && pieces_.contains(known->second.name);
      one.counts =
          norms_.model.is_local() || (known != known_.end() && counted_.contains(known->second.name));
      found.push_back(std::move(one));
    }
  }
  return found;
}

at::Tensor Optimizer::step(LossClosure closure) {
  const at::NoGradGuard no_grad;
  at::Tensor loss;
  if (closure) {
    const at::AutoGradMode with_grad(true);
    loss = closure();
  }
  const std::vector<Gradient> found = gradients();
  update(found);
  if (!found.empty()) note_step(name());
  return loss;
}

NamedTensors Optimizer::state_dict() const {
  NamedTensors tensors;
  const bool by_name = have_names(param_groups(), known_);
  std::int64_t number = 0;
  const auto add_options = [&](const NamedTensors& options, const std::string& owner) {
    for (const auto& [key, value] : options)
      tensors.emplace_back(lockstep::str("param_groups.", owner, '.', key), value);
  };
  for (std::size_t g = 0; g < param_groups().size(); ++g) {
    const ParamGroup& group = param_groups()[g];
    const NamedTensors options = options_as_tensors(group.options());
    std::vector<std::int64_t> numbers;
    for (const at::Tensor& parameter : group.params()) {
      auto* const key = parameter.unsafeGetTensorImpl();
      const std::string owner = by_name ? known_.at(key).name : std::to_string(number);
      const auto state = state_.find(key);
      if (state != state_.end()) {
        for (const auto& [name, value] : state_as_tensors(*state->second))
          tensors.emplace_back(lockstep::str("state.", owner, '.', name), value);
      }
      if (by_name) add_options(options, owner);
      numbers.push_back(number++);
    }
    if (by_name) continue;
    add_options(options, std::to_string(g));
    tensors.emplace_back(lockstep::str("param_groups.", g, ".params"), at::tensor(numbers, at::kLong));
  }
  return tensors;
}

void Optimizer::expect_shape(const std::string& where, const at::Tensor& value,
                             const at::Tensor& parameter) const {
  if (value.sizes() != parameter.sizes() && value.dim() != 0)
    throw InvalidArgument(
        lockstep::str(where, " has shape ", value.sizes(), " and does not fit ", called(parameter)));
}

std::unique_ptr<Optimizer::State> Optimizer::fitting_state(Values& values, const std::string& owner,
                                                           const at::Tensor& parameter) const {
  for (auto& [key, value] : values) {
    expect_shape(lockstep::str("load_state_dict: state.", printable(owner), '.', key), value, parameter);
    if (key != "step") value = memory_.zeros_like(parameter).copy_(value.expand(parameter.sizes()));
  }
  return state_from(values);
}

void Optimizer::load_state_dict(const NamedTensors& tensors) {
  const bool by_name = have_names(param_groups(), known_) && !is_by_number(tensors);
  Loaded loaded = by_name ? load_by_name(tensors) : load_by_number(tensors);
  state_ = std::move(loaded.states);
  auto& own = param_groups();
  for (std::size_t g = 0; g < own.size(); ++g) own[g].set_options(std::move(loaded.options[g]));
}

Optimizer::Loaded Optimizer::load_by_number(const NamedTensors& tensors) const {
  std::map<std::size_t, Values> states;
  std::map<std::size_t, Values> groups;
  for (const auto& [name, tensor] : tensors) {
    const StateEntry entry = entry_of(name);
    (entry.is_option ? groups : states)[number_of_owner(entry, name)][entry.key] = tensor;
  }
  const auto& own = param_groups();
  if (groups.size() != own.size() || (!groups.empty() && groups.rbegin()->first >= own.size()))
    throw InvalidArgument(lockstep::str("load_state_dict: the state has ", groups.size(),
                                        " parameter groups, the optimiser ", own.size()));
  Loaded loaded;
  for (std::size_t g = 0; g < own.size(); ++g) {
    Values values = groups[g];
    const at::Tensor numbers = values["params"];
    values.erase("params");
    if (!numbers.defined() || numbers.numel() != static_cast<std::int64_t>(own[g].params().size()))
      throw InvalidArgument(lockstep::str("load_state_dict: group ", g, " has ",
                                          numbers.defined() ? numbers.numel() : 0,
                                          " parameters in the state and ", own[g].params().size(), " here"));
    loaded.options.push_back(own[g].options().clone());
    set_options(*loaded.options.back(), values, lockstep::str("param_groups.", g, '.'));
    const at::Tensor flat = numbers.to(at::kLong).reshape({-1});
    for (std::size_t i = 0; i < own[g].params().size(); ++i) {
      const at::Tensor& parameter = own[g].params()[i];
      const auto number = static_cast<std::size_t>(flat[static_cast<std::int64_t>(i)].item<std::int64_t>());
      const auto state = states.find(number);
      if (state == states.end()) continue;
      loaded.states[parameter.unsafeGetTensorImpl()] =
          fitting_state(state->second, std::to_string(number), parameter);
      states.erase(state);
    }
  }
  if (!states.empty())
    throw InvalidArgument(lockstep::str("load_state_dict: there is state of parameter ",
                                        states.begin()->first, ", which no group has"));
  return loaded;
}

// The options of a group are those of its parameters in the state, which have them alike.
Optimizer::Loaded Optimizer::load_by_name(const NamedTensors& tensors) const {
  std::map<std::string, std::pair<Values, Values>> saved;  // state and options, by parameter
  for (const auto& [name, tensor] : tensors) {
    const StateEntry entry = entry_of(name);
    auto& [state, options] = saved[entry.owner];
    (entry.is_option ? options : state)[entry.key] = tensor;
  }
  Loaded loaded;
  for (const ParamGroup& group : param_groups()) {
    loaded.options.push_back(group.options().clone());
    std::optional<std::pair<std::string, Values>> first;  // parameter of the group
    for (const at::Tensor& parameter : group.params()) {
      const std::string& name = known_.at(parameter.unsafeGetTensorImpl()).name;
      const auto found = saved.find(name);
      if (found == saved.end()) continue;
      auto& [state, own] = found->second;
      if (first && !are_equal(first->second, own))
        throw InvalidArgument(lockstep::str("load_state_dict: ", in_quotes(first->first), " and ",
                                            in_quotes(name), " have different options in the state and ",
                                            "are in one parameter group here"));
      if (!first) set_options(*loaded.options.back(), own, lockstep::str("param_groups.", name, '.'));
      if (!first) first.emplace(name, own);
      if (!state.empty())
        loaded.states[parameter.unsafeGetTensorImpl()] = fitting_state(state, name, parameter);
      saved.erase(found);
    }
  }
  if (!saved.empty())
    throw InvalidArgument(lockstep::str("load_state_dict: there is state of parameter ",
                                        in_quotes(saved.begin()->first), ", which no group has"));
  return loaded;
}

}  // namespace lockstep::optim

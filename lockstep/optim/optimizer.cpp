#include "lockstep/optim/optimizer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/tensor.h>

#include <charconv>
#include <set>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/job/unaveraged_steps.h"
#include "lockstep/optim/chunks.h"

namespace lockstep::optim {
namespace {

using Values = std::map<std::string, at::Tensor>;

// "state.3.exp_avg" in its parts.
struct Entry {
  std::string kind;
  std::size_t index = 0;
  std::string key;
};

Entry parsed(const std::string& name) {
  const std::size_t first = name.find('.');
  const std::size_t second = first == std::string::npos ? first : name.find('.', first + 1);
  Entry entry;
  if (second != std::string::npos) {
    entry.kind = name.substr(0, first);
    entry.key = name.substr(second + 1);
    const char* const end = name.data() + second;
    const auto [rest, error] = std::from_chars(name.data() + first + 1, end, entry.index);
    if (error == std::errc() && rest == end && (entry.kind == "state" || entry.kind == "param_groups"))
      return entry;
  }
  throw InvalidArgument(lockstep::str("load_state_dict: \"", printable(name),
                                      "\" is no entry of an optimiser's state dict (state.I.NAME or ",
                                      "param_groups.G.NAME)"));
}

}  // namespace

Optimizer::Optimizer(std::unique_ptr<Options> defaults)
    : torch::optim::Optimizer(std::vector<ParamGroup>(), std::move(defaults)) {}

std::string Optimizer::called(const at::Tensor& parameter) const {
  const auto found = names_.find(parameter.unsafeGetTensorImpl());
  if (found != names_.end())
    return lockstep::str("parameter \"", printable(found->second), "\", of shape ", parameter.sizes());
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
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : parameters) {
    if (tensor.defined()) names_.emplace(tensor.unsafeGetTensorImpl(), name);
    tensors.push_back(tensor);
  }
  add_param_group(ParamGroup(std::move(tensors)));
}

std::vector<Optimizer::Gradient> Optimizer::gradients() const {
  std::vector<Gradient> found;
  for (std::size_t g = 0; g < param_groups().size(); ++g) {
    for (const at::Tensor& parameter : param_groups()[g].params()) {
      const at::Tensor& grad = parameter.grad();
      if (!grad.defined()) continue;
      if (grad.layout() != at::kStrided)
        throw InvalidArgument(
            lockstep::str(name(), ": the gradient of ", called(parameter), ", is ", grad.layout(),
                          "; only dense gradients can be stepped with. Give it to an optimiser of its own ",
                          "(torch::optim::SGD), or make the embedding dense."));
      if (grad.sizes() != parameter.sizes())
        throw InvalidArgument(
            lockstep::str(name(), ": the gradient of ", called(parameter), ", has shape ", grad.sizes()));
      found.push_back({g, parameter, real_view(parameter), real_view(grad)});
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
  std::int64_t number = 0;
  for (std::size_t g = 0; g < param_groups().size(); ++g) {
    const ParamGroup& group = param_groups()[g];
    std::vector<std::int64_t> numbers;
    for (const at::Tensor& parameter : group.params()) {
      const auto state = state_.find(parameter.unsafeGetTensorImpl());
      if (state != state_.end()) {
        for (const auto& [key, value] : state_as_tensors(*state->second))
          tensors.emplace_back(lockstep::str("state.", number, '.', key), value);
      }
      numbers.push_back(number++);
    }
    for (const auto& [key, value] : options_as_tensors(group.options()))
      tensors.emplace_back(lockstep::str("param_groups.", g, '.', key), value);
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

void Optimizer::load_state_dict(const NamedTensors& tensors) {
  std::map<std::size_t, Values> states;
  std::map<std::size_t, Values> groups;
  for (const auto& [name, tensor] : tensors) {
    const Entry entry = parsed(name);
    (entry.kind == "state" ? states : groups)[entry.index][entry.key] = tensor;
  }
  auto& own = param_groups();
  if (groups.size() != own.size() || (!groups.empty() && groups.rbegin()->first >= own.size()))
    throw InvalidArgument(lockstep::str("load_state_dict: the state has ", groups.size(),
                                        " parameter groups, the optimiser ", own.size()));
  ska::flat_hash_map<void*, std::unique_ptr<State>> loaded;
  std::vector<std::unique_ptr<Options>> options;
  for (std::size_t g = 0; g < own.size(); ++g) {
    Values values = groups[g];
    const at::Tensor numbers = values["params"];
    values.erase("params");
    if (!numbers.defined() || numbers.numel() != static_cast<std::int64_t>(own[g].params().size()))
      throw InvalidArgument(lockstep::str("load_state_dict: group ", g, " has ",
                                          numbers.defined() ? numbers.numel() : 0,
                                          " parameters in the state and ", own[g].params().size(), " here"));
    options.push_back(own[g].options().clone());
    set_options(*options.back(), values, lockstep::str("param_groups.", g, '.'));
    const at::Tensor flat = numbers.to(at::kLong).reshape({-1});
    for (std::size_t i = 0; i < own[g].params().size(); ++i) {
      const at::Tensor& parameter = own[g].params()[i];
      const auto number = static_cast<std::size_t>(flat[static_cast<std::int64_t>(i)].item<std::int64_t>());
      const auto state = states.find(number);
      if (state == states.end()) continue;
      for (auto& [key, value] : state->second) {
        expect_shape(lockstep::str("load_state_dict: state.", number, '.', key), value, parameter);
        if (key != "step") value = at::empty_like(parameter).copy_(value.expand(parameter.sizes()));
      }
      loaded[parameter.unsafeGetTensorImpl()] = state_from(state->second);
      states.erase(state);
    }
  }
  if (!states.empty())
    throw InvalidArgument(lockstep::str("load_state_dict: there is state of parameter ",
                                        states.begin()->first, ", which no group has"));
  state_ = std::move(loaded);
  for (std::size_t g = 0; g < own.size(); ++g) own[g].set_options(std::move(options[g]));
}

}  // namespace lockstep::optim

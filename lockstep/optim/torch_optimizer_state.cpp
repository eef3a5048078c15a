#include "lockstep/optim/torch_optimizer_state.h"

#include <ATen/ops/empty_like.h>
#include <c10/util/Exception.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/optim/options_fields.h"
#include "lockstep/optim/state_entries.h"
#include "lockstep/optim/step_count.h"

namespace lockstep {
namespace {

using optim::StateEntry;
using Values = std::map<std::string, at::Tensor>;
using Base = torch::optim::Optimizer;
using BaseState = torch::optim::OptimizerParamState;

constexpr std::size_t MOST_PROBLEMS_SHOWN = 10;

// Collects all mismatches, so that one error lists them.
class Problems {
 public:
  template <typename... Parts> void add(const Parts&... parts) { list_.push_back(lockstep::str(parts...)); }

  void throw_if_any(const char* optimizer) const {
    if (list_.empty()) return;
    std::string text;
    for (std::size_t i = 0; i < std::min(list_.size(), MOST_PROBLEMS_SHOWN); ++i)
      text += lockstep::str(i > 0 ? "; " : "", list_[i]);
    if (list_.size() > MOST_PROBLEMS_SHOWN)
      text += lockstep::str("; and ", list_.size() - MOST_PROBLEMS_SHOWN, " more");
    throw InvalidArgument(
        lockstep::str("load_state_dict: the state does not fit this ", optimizer, ": ", text));
  }

 private:
  std::vector<std::string> list_;
};

// ---- the five optimisers, each with its fields
//
// options(): all options, by Python's names. state(): all values of a parameter's state; the last argument
// says whether step() needs the value under these options.

struct Sgd {
  using Optimizer = torch::optim::SGD;
  using Options = torch::optim::SGDOptions;
  using State = torch::optim::SGDParamState;
  static constexpr const char* NAME = "SGD";
  static constexpr bool NEEDS_STATE = false;
  static void options(auto& o, const auto& visit) {
    visit("lr", o.lr());
    visit("momentum", o.momentum());
    visit("dampening", o.dampening());
    visit("weight_decay", o.weight_decay());
    visit("nesterov", o.nesterov());
  }
  static void state(auto& s, const Options&, const auto& visit) {
    visit("momentum_buffer", s.momentum_buffer(), true);
  }
};

template <typename AnyOptimizer, typename AnyOptions, typename AnyState> struct AdamFamily {
  using Optimizer = AnyOptimizer;
  using Options = AnyOptions;
  using State = AnyState;
  static constexpr bool NEEDS_STATE = false;
  static void options(auto& o, const auto& visit) {
    visit("lr", o.lr());
    visit("betas", o.betas());
    visit("eps", o.eps());
    visit("weight_decay", o.weight_decay());
    visit("amsgrad", o.amsgrad());
  }
  static void state(auto& s, const Options& o, const auto& visit) {
    visit("step", s.step(), true);
    visit("exp_avg", s.exp_avg(), true);
    visit("exp_avg_sq", s.exp_avg_sq(), true);
    visit("max_exp_avg_sq", s.max_exp_avg_sq(), o.amsgrad());
  }
};
struct Adam : AdamFamily<torch::optim::Adam, torch::optim::AdamOptions, torch::optim::AdamParamState> {
  static constexpr const char* NAME = "Adam";
};
struct AdamW : AdamFamily<torch::optim::AdamW, torch::optim::AdamWOptions, torch::optim::AdamWParamState> {
  static constexpr const char* NAME = "AdamW";
};

struct RmsProp {
  using Optimizer = torch::optim::RMSprop;
  using Options = torch::optim::RMSpropOptions;
  using State = torch::optim::RMSpropParamState;
  static constexpr const char* NAME = "RMSprop";
  static constexpr bool NEEDS_STATE = false;
  static void options(auto& o, const auto& visit) {
    visit("lr", o.lr());
    visit("alpha", o.alpha());
    visit("eps", o.eps());
    visit("weight_decay", o.weight_decay());
    visit("momentum", o.momentum());
    visit("centered", o.centered());
  }
  static void state(auto& s, const Options& o, const auto& visit) {
    visit("step", s.step(), true);
    visit("square_avg", s.square_avg(), true);
    visit("momentum_buffer", s.momentum_buffer(), o.momentum() > 0);
    visit("grad_avg", s.grad_avg(), o.centered());
  }
};

struct AdaGrad {
  using Optimizer = torch::optim::Adagrad;
  using Options = torch::optim::AdagradOptions;
  using State = torch::optim::AdagradParamState;
  static constexpr const char* NAME = "Adagrad";
  static constexpr bool NEEDS_STATE = true;  // the constructor makes it
  static void options(auto& o, const auto& visit) {
    visit("lr", o.lr());
    visit("lr_decay", o.lr_decay());
    visit("weight_decay", o.weight_decay());
    visit("initial_accumulator_value", o.initial_accumulator_value());
    visit("eps", o.eps());
  }
  static void state(auto& s, const Options&, const auto& visit) {
    visit("step", s.step(), true);
    visit("sum", s.sum(), true);
  }
};

template <typename Value> constexpr bool is_tensor = std::is_same_v<std::decay_t<Value>, at::Tensor>;

// Calls visit.operator()<Kind>() with the optimiser's kind.
template <typename Visit> auto with_kind(const Base& optimizer, const char* function, const Visit& visit) {
  const auto is = [&]<typename Kind>() {
    return dynamic_cast<const typename Kind::Optimizer*>(&optimizer) != nullptr;
  };
  if (is.template operator()<Sgd>()) return visit.template operator()<Sgd>();
  if (is.template operator()<Adam>()) return visit.template operator()<Adam>();
  if (is.template operator()<AdamW>()) return visit.template operator()<AdamW>();
  if (is.template operator()<RmsProp>()) return visit.template operator()<RmsProp>();
  if (is.template operator()<AdaGrad>()) return visit.template operator()<AdaGrad>();
  const bool is_lbfgs = dynamic_cast<const torch::optim::LBFGS*>(&optimizer) != nullptr;
  throw InvalidArgument(
      lockstep::str(function, ": the state of ", is_lbfgs ? "torch::optim::LBFGS" : "this optimiser",
                    " cannot be had as named tensors; that of torch::optim::SGD, Adam, AdamW, RMSprop, ",
                    "Adagrad, of every optimiser of lockstep::optim and of a NamedState can"));
}

template <typename Kind> const typename Kind::Options& options_of(const optim::ParamGroup& group) {
  const auto* options = dynamic_cast<const typename Kind::Options*>(&group.options());
  if (options == nullptr)
    throw InvalidArgument(
        lockstep::str(Kind::NAME, ": a parameter group has the options of another optimiser"));
  return *options;
}

// ---- saving

template <typename Kind> NamedTensors state_of(const Base& optimizer) {
  NamedTensors tensors;
  std::int64_t number = 0;
  for (std::size_t g = 0; g < optimizer.param_groups().size(); ++g) {
    const optim::ParamGroup& group = optimizer.param_groups()[g];
    const auto& options = options_of<Kind>(group);
    std::vector<std::int64_t> numbers;
    for (const at::Tensor& parameter : group.params()) {
      const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
      if (found != optimizer.state().end()) {
        const auto& state = static_cast<const typename Kind::State&>(*found->second);
        Kind::state(state, options, [&](const char* key, const auto& value, bool) {
          const std::string name = lockstep::str("state.", number, '.', key);
          if constexpr (!is_tensor<decltype(value)>) {
            tensors.emplace_back(name, optim::tensor_of_steps(value));
          } else if (value.defined()) {
            tensors.emplace_back(name, value);
          }
        });
      }
      numbers.push_back(number++);
    }
    Kind::options(options, [&](const char* key, const auto& value) {
      tensors.emplace_back(lockstep::str("param_groups.", g, '.', key), optim::tensor_of(value));
    });
    tensors.emplace_back(lockstep::str("param_groups.", g, ".params"), at::tensor(numbers, at::kLong));
  }
  return tensors;
}

// ---- loading

struct Entries {
  std::map<std::size_t, Values> states;  // by the parameter's number in the state
  std::map<std::size_t, Values> groups;
};

Entries sorted_entries(const NamedTensors& tensors, Problems& problems) {
  Entries sorted;
  for (const auto& [name, tensor] : tensors) {
    const StateEntry entry = optim::entry_of(name);
    auto& values = (entry.is_option ? sorted.groups : sorted.states)[optim::number_of_owner(entry, name)];
    if (!tensor.defined())
      problems.add(printable(name), " is undefined");
    else if (!values.emplace(entry.key, tensor).second)
      problems.add(printable(name), " is there twice");
  }
  return sorted;
}

template <typename Kind>
void set_options(const Values& values, std::size_t group, typename Kind::Options& options,
                 Problems& problems) {
  std::set<std::string> known = optim::python_only_options();
  Kind::options(options, [&](const char* key, auto& value) {
    known.insert(key);
    const auto found = values.find(key);
    if (found == values.end()) return;
    constexpr std::int64_t count = std::is_arithmetic_v<std::decay_t<decltype(value)>> ? 1 : 2;
    if (found->second.numel() == count)
      optim::value_from(key, found->second, value);
    else
      problems.add("param_groups.", group, '.', key, " has ", found->second.numel(), " values, not ", count);
  });
  // Options of Python that change the step, with the only value that libtorch's step corresponds to.
  const std::map<std::string, bool> fixed = {{"maximize", false},
                                             {"decoupled_weight_decay", std::is_same_v<Kind, AdamW>}};
  for (const auto& [key, tensor] : values) {
    const auto only = fixed.find(key);
    if (only != fixed.end()) {
      if (tensor.numel() != 1 || tensor.template item<bool>() != only->second)
        problems.add("param_groups.", group, '.', key, " must be ", only->second ? "true" : "false",
                     " for torch::optim::", Kind::NAME);
    } else if (!known.contains(key) && key != "params") {
      problems.add("param_groups.", group, '.', printable(key), " is not an option of it");
    }
  }
  try {  // libtorch's constructor checks the ranges
    const typename Kind::Optimizer trial(std::vector<at::Tensor>(), options);
  } catch (const c10::Error& error) {
    problems.add("param_groups.", group, ": ", error.what_without_backtrace());
  }
}

// Returns the state of one parameter. Adds mismatches to `problems`.
template <typename Kind>
std::unique_ptr<BaseState> state_from(Values values, std::size_t number, const at::Tensor& parameter,
                                      const typename Kind::Options& options, Problems& problems) {
  auto state = std::make_unique<typename Kind::State>();
  Kind::state(*state, options, [&](const char* key, auto& value, bool is_needed) {
    const auto found = values.find(key);
    if (found == values.end()) {
      if (is_needed) problems.add("state.", number, '.', key, " is missing");
      return;
    }
    const at::Tensor& tensor = found->second;
    if constexpr (is_tensor<decltype(value)>) {
      if (tensor.sizes() == parameter.sizes())
        value = at::empty_like(parameter).copy_(tensor);
      else
        problems.add("state.", number, '.', key, " has shape ", tensor.sizes(), " and the parameter here ",
                     parameter.sizes());
    } else if (tensor.numel() == 1) {
      value = static_cast<std::int64_t>(tensor.item<double>());
    } else {
      problems.add("state.", number, '.', key, " has ", tensor.numel(), " values, not 1");
    }
    values.erase(found);
  });
  for (const auto& [key, tensor] : values)
    problems.add("state.", number, '.', printable(key), " belongs to another optimiser");
  return state;
}

template <typename Kind> struct Loaded {
  std::vector<typename Kind::Options> options;  // by group
  ska::flat_hash_map<void*, std::unique_ptr<BaseState>> states;
};

// Takes the states of one group's parameters out of `states`.
template <typename Kind>
void load_group(const optim::ParamGroup& group, std::size_t g, const at::Tensor& numbers,
                std::map<std::size_t, Values>& states, Loaded<Kind>& loaded, Problems& problems) {
  const auto count = static_cast<std::int64_t>(group.params().size());
  if (!numbers.defined() || numbers.numel() != count)
    return problems.add("group ", g, " has ", numbers.defined() ? numbers.numel() : 0,
                        " parameters in the state and ", count, " here");
  const at::Tensor flat = numbers.to(at::kLong).reshape({-1});
  for (std::int64_t i = 0; i < count; ++i) {
    const at::Tensor& parameter = group.params()[static_cast<std::size_t>(i)];
    const auto number = static_cast<std::size_t>(flat[i].item<std::int64_t>());
    const auto found = states.find(number);
    if (found != states.end()) {
      loaded.states[parameter.unsafeGetTensorImpl()] =
          state_from<Kind>(std::move(found->second), number, parameter, loaded.options.back(), problems);
      states.erase(found);
    } else if (Kind::NEEDS_STATE) {
      problems.add("there is no state of parameter ", number);
    }
  }
}

template <typename Kind> void load_into(Base& optimizer, const NamedTensors& tensors) {
  Problems problems;
  Entries entries = sorted_entries(tensors, problems);
  auto& own = optimizer.param_groups();
  if (entries.groups.size() != own.size() || (!own.empty() && entries.groups.rbegin()->first >= own.size()))
    problems.add("it has ", entries.groups.size(), " parameter groups and the optimiser ", own.size());
  Loaded<Kind> loaded;
  for (std::size_t g = 0; g < own.size(); ++g) {
    const Values& values = entries.groups[g];
    const auto numbers = values.find("params");
    loaded.options.push_back(options_of<Kind>(own[g]));
    set_options<Kind>(values, g, loaded.options.back(), problems);
    load_group<Kind>(own[g], g, numbers == values.end() ? at::Tensor() : numbers->second, entries.states,
                     loaded, problems);
  }
  for (const auto& [number, values] : entries.states)
    problems.add("there is state of parameter ", number, ", which no group has");
  problems.throw_if_any(Kind::NAME);

  optimizer.state() = std::move(loaded.states);
  for (std::size_t g = 0; g < own.size(); ++g)
    static_cast<typename Kind::Options&>(own[g].options()) = loaded.options[g];
}

}  // namespace

NamedTensors state_dict(const torch::optim::Optimizer& optimizer) {
  if (const auto* own = dynamic_cast<const optim::Optimizer*>(&optimizer)) return own->state_dict();
  if (const auto* own = dynamic_cast<const NamedState*>(&optimizer)) return own->state_dict();
  return with_kind(optimizer, "state_dict", [&]<typename Kind>() { return state_of<Kind>(optimizer); });
}

void load_state_dict(torch::optim::Optimizer& optimizer, const NamedTensors& tensors) {
  if (auto* own = dynamic_cast<optim::Optimizer*>(&optimizer)) return own->load_state_dict(tensors);
  if (auto* own = dynamic_cast<NamedState*>(&optimizer)) return own->load_state_dict(tensors);
  with_kind(optimizer, "load_state_dict", [&]<typename Kind>() {
    if (!optim::is_by_number(tensors) && !tensors.empty())
      throw InvalidArgument(
          lockstep::str("load_state_dict: the state is by parameter name and torch::optim::", Kind::NAME,
                        " knows no names; lockstep::optim has SGD, Adam and AdamW with names"));
    load_into<Kind>(optimizer, tensors);
  });
}

}  // namespace lockstep

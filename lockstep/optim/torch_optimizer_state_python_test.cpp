// libtorch's optimisers beside Python's torch.optim: names and values of their states, and states handed over
// both ways.
#include <gtest/gtest.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <functional>
#include <map>
#include <memory>

#include "lockstep/optim/torch_optimizer_state.h"
#include "lockstep/tensor/state_dict.h"
#include "testing/python.h"
#include "testing/temp_folder.h"
#include "testing/tensors.h"

namespace lockstep {
namespace {

using testing::random_values;
using testing::run_python;
using testing::TempFolder;

const char* const TRAIN_IN_PYTHON = R"(
import sys, torch
from safetensors.torch import load_file, save_file
from torch.optim import SGD, Adagrad, Adam, AdamW, RMSprop

def optimizer_state(path):                     # as the head of optimizer.h has it
    state, groups = {}, {}
    for name, value in load_file(path).items():
        kind, index, key = name.split(".")
        part = (state if kind == "state" else groups).setdefault(int(index), {})
        part[key] = value if kind == "state" else value.tolist()
    return {"state": state, "param_groups": [groups[i] for i in sorted(groups)]}

def flat(state):
    tensors = {f"state.{i}.{k}": torch.as_tensor(v).clone() for i, s in state["state"].items() for k, v in s.items() if v is not None}
    for g, group in enumerate(state["param_groups"]):
        tensors |= {f"param_groups.{g}.{k}": torch.tensor(v, dtype=torch.float64 if isinstance(v, (float, tuple)) else None)
                    for k, v in group.items() if v is not None}
    return tensors

folder, first, last, *cases = sys.argv[1:]
torch.set_num_threads(1)
inputs = load_file(folder + "/inputs.safetensors")
results = {}
for number, case in enumerate(cases):
    start = load_file(folder + "/start.safetensors") if int(first) > 0 else {f"{number}.{n}": inputs[n] for n in "ab"}
    ps = [start[f"{number}.{n}"].clone() for n in "ab"]
    optimizer = eval(case)
    if int(first) > 0:
        optimizer.load_state_dict(optimizer_state(f"{folder}/{number}.safetensors"))
    for s in range(int(first), int(last)):
        for p, n in zip(ps, "ab"):
            p.grad = inputs["g" + n][s]
        optimizer.step()
    results |= {f"{number}.{n}": p for p, n in zip(ps, "ab")}
    save_file(flat(optimizer.state_dict()), f"{folder}/python.{number}.safetensors")
save_file(results, folder + "/results.safetensors")
)";

struct PythonCase {
  std::string python;  // a torch.optim expression of `ps`
  std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor>)> make;
};

template <typename O, typename Options> PythonCase row(const std::string& python, const Options& options) {
  return {python, [=](const std::vector<at::Tensor>& ps) { return std::make_unique<O>(ps, options); }};
}

std::vector<PythonCase> python_cases() {
  using namespace torch::optim;  // NOLINT(google-build-using-namespace)
  return {
      row<SGD>("SGD(ps, 0.05, momentum=0.9, dampening=0.2, weight_decay=0.01)",
               SGDOptions(0.05).momentum(0.9).dampening(0.2).weight_decay(0.01)),
      row<Adam>("Adam(ps, 0.01, betas=(0.4, 0.9), eps=1e-4, weight_decay=0.1, amsgrad=True)",
                AdamOptions(0.01).betas({0.4, 0.9}).eps(1e-4).weight_decay(0.1).amsgrad(true)),
      row<AdamW>("AdamW(ps, 0.01, weight_decay=0.1)", AdamWOptions(0.01).weight_decay(0.1)),
      row<RMSprop>("RMSprop(ps, 0.01, momentum=0.9, centered=True)",
                   RMSpropOptions(0.01).momentum(0.9).centered(true)),
      row<RMSprop>("RMSprop(ps, 0.01, alpha=0.9)", RMSpropOptions(0.01).alpha(0.9)),
      row<Adagrad>("Adagrad(ps, 0.1, lr_decay=0.01, initial_accumulator_value=0.1)",
                   AdagradOptions(0.1).lr_decay(0.01).initial_accumulator_value(0.1)),
  };
}

class BesidePython : public ::testing::Test {
 protected:
  static constexpr int STEPS = 20, HALF = 8;

  BesidePython() {
    for (const auto& [name, shape] :
         std::vector<std::pair<std::string, std::vector<std::int64_t>>>{{"a", {6, 9}}, {"b", {13}}}) {
      std::vector<std::int64_t> all = shape;
      all.insert(all.begin(), STEPS);
      inputs_[name] = random_values(shape, 1);
      inputs_["g" + name] = random_values(all, 2);
    }
    save_state_dict(NamedTensors(inputs_.begin(), inputs_.end()), folder_ / "inputs.safetensors");
  }

  std::map<std::string, at::Tensor> python(int first, int last) const {
    std::vector<std::string> arguments = {folder_.path(), std::to_string(first), std::to_string(last)};
    for (const PythonCase& c : python_cases()) arguments.push_back(c.python);
    run_python(TRAIN_IN_PYTHON, arguments);
    return loaded("results");
  }

  std::map<std::string, at::Tensor> loaded(const std::string& name) const {
    std::map<std::string, at::Tensor> tensors;
    for (const auto& [key, tensor] : load_tensors(folder_ / (name + ".safetensors"))) tensors[key] = tensor;
    return tensors;
  }

  std::vector<at::Tensor> start() const { return {inputs_.at("a").clone(), inputs_.at("b").clone()}; }

  void train(torch::optim::Optimizer& optimizer, const std::vector<at::Tensor>& ps, int first,
             int last) const {
    for (int s = first; s < last; ++s) {
      ps[0].mutable_grad() = inputs_.at("ga")[s];
      ps[1].mutable_grad() = inputs_.at("gb")[s];
      optimizer.step();
    }
  }

  static void compare(std::size_t number, const std::vector<at::Tensor>& ps,
                      std::map<std::string, at::Tensor>& results) {
    const std::string n = std::to_string(number);
    EXPECT_TRUE(torch::allclose(ps[0], results.at(n + ".a"), 1e-12, 1e-13)) << python_cases()[number].python;
    EXPECT_TRUE(torch::allclose(ps[1], results.at(n + ".b"), 1e-12, 1e-13)) << python_cases()[number].python;
  }

  TempFolder folder_;
  std::map<std::string, at::Tensor> inputs_;
};

TEST_F(BesidePython, PythonContinuesWhatLibtorchBegan) {
  NamedTensors start_of_python;
  std::vector<std::vector<at::Tensor>> expected;
  for (std::size_t i = 0; i < python_cases().size(); ++i) {
    const auto ps = start();
    const auto optimizer = python_cases()[i].make(ps);
    train(*optimizer, ps, 0, HALF);
    save_state_dict(state_dict(*optimizer), folder_ / (std::to_string(i) + ".safetensors"));
    start_of_python.emplace_back(std::to_string(i) + ".a", ps[0].clone());
    start_of_python.emplace_back(std::to_string(i) + ".b", ps[1].clone());
    train(*optimizer, ps, HALF, STEPS);
    expected.push_back(ps);
  }
  save_state_dict(start_of_python, folder_ / "start.safetensors");
  auto results = python(HALF, STEPS);
  for (std::size_t i = 0; i < python_cases().size(); ++i) compare(i, expected[i], results);
}

TEST_F(BesidePython, LibtorchContinuesWhatPythonBegan) {
  auto between = python(0, HALF);
  std::vector<NamedTensors> states;
  for (std::size_t i = 0; i < python_cases().size(); ++i)
    states.push_back(load_tensors(folder_ / ("python." + std::to_string(i) + ".safetensors")));
  auto results = python(0, STEPS);
  for (std::size_t i = 0; i < python_cases().size(); ++i) {
    auto ps = start();
    const auto optimizer = python_cases()[i].make(ps);
    ps[0].copy_(between.at(std::to_string(i) + ".a"));
    ps[1].copy_(between.at(std::to_string(i) + ".b"));
    load_state_dict(*optimizer, states[i]);
    train(*optimizer, ps, HALF, STEPS);
    compare(i, ps, results);
  }
}

// Every entry that libtorch writes is one that Python has, with its dtype and shape; options of Python that
// are left over are those that libtorch lacks.
TEST_F(BesidePython, HasPythonsNames) {
  python(0, HALF);
  for (std::size_t i = 0; i < python_cases().size(); ++i) {
    auto expected = loaded("python." + std::to_string(i));
    const auto ps = start();
    const auto optimizer = python_cases()[i].make(ps);
    train(*optimizer, ps, 0, HALF);
    for (const auto& [name, value] : state_dict(*optimizer)) {
      // libtorch makes no tensors for what its options leave unused; RMSprop of Python does.
      ASSERT_TRUE(expected.contains(name)) << python_cases()[i].python << ' ' << name;
      const at::Tensor& other = expected.at(name);
      EXPECT_EQ(value.sizes(), other.sizes()) << name;
      if (name.starts_with("state.")) {
        EXPECT_EQ(value.scalar_type(), other.scalar_type()) << name;
        EXPECT_TRUE(torch::allclose(value, other, 1e-12, 1e-13)) << name;
      } else {
        EXPECT_TRUE(torch::equal(value.to(at::kDouble), other.to(at::kDouble))) << name;
      }
      expected.erase(name);
    }
    for (const auto& [name, value] : expected) EXPECT_TRUE(name.starts_with("param_groups.0.")) << name;
  }
}

}  // namespace
}  // namespace lockstep

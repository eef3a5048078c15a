// Beside Python's torch.optim: the same weights and gradients, by file, for 100 steps, and state handed over
// both ways.
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <functional>
#include <map>
#include <memory>

#include "lockstep/optim/adam.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/tensor/state_dict.h"
#include "testing/python.h"
#include "testing/temp_folder.h"

namespace lockstep::optim {
namespace {

using testing::run_python;
using testing::TempFolder;

constexpr int STEPS = 100;

struct Case {
  std::string python;  // a torch.optim expression of `ps`
  std::function<std::unique_ptr<Optimizer>(std::vector<at::Tensor>)> make;
};

template <typename O, typename Options> Case row(const std::string& python, const Options& options) {
  return {python, [=](const std::vector<at::Tensor>& ps) { return std::make_unique<O>(ps, options); }};
}

std::vector<Case> cases() {
  return {
      row<SGD>("SGD(ps, 0.05)", SGDOptions(0.05)),
      row<SGD>("SGD(ps, 0.05, momentum=0.9, dampening=0.2, weight_decay=0.01, maximize=True)",
               SGDOptions(0.05).momentum(0.9).dampening(0.2).weight_decay(0.01).maximize(true)),
      row<SGD>("SGD(ps, 0.05, momentum=0.9, weight_decay=0.01, nesterov=True)",
               SGDOptions(0.05).momentum(0.9).weight_decay(0.01).nesterov(true)),
      row<Adam>("Adam(ps)", AdamOptions()),
      row<Adam>("Adam(ps, 0.01, betas=(0.4, 0.9), eps=1e-4, weight_decay=0.1, amsgrad=True, maximize=True)",
                AdamOptions(0.01).betas({0.4, 0.9}).eps(1e-4).weight_decay(0.1).amsgrad(true).maximize(true)),
      row<AdamW>("AdamW(ps)", AdamWOptions()),
      row<AdamW>("AdamW(ps, 0.01, betas=(0.4, 0.9), weight_decay=0.1, amsgrad=True)",
                 AdamWOptions(0.01).betas({0.4, 0.9}).weight_decay(0.1).amsgrad(true)),
  };
}

const char* const TRAIN = R"(
import sys, torch
from safetensors.torch import load_file, save_file
from torch.optim import SGD, Adam, AdamW

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

folder, first, last, dtype, load, *cases = sys.argv[1:]
torch.set_num_threads(1)
inputs = load_file(folder + "/inputs.safetensors")
results = {}
for number, case in enumerate(cases):
    start = load_file(folder + "/start.safetensors") if load == "load" else inputs
    ps = [start[(f"{number}." if load == "load" else "") + n].to(getattr(torch, dtype)).clone() for n in "ab"]
    optimizer = eval(case)
    if load == "load":
        optimizer.load_state_dict(optimizer_state(f"{folder}/{number}.safetensors"))
    for s in range(int(first), int(last)):
        for p, n in zip(ps, "ab"):
            p.grad = inputs["g" + n][s].to(p.dtype)
        optimizer.step()
    for p, n in zip(ps, "ab"):
        results[f"{number}.{n}"] = p
    save_file(flat(optimizer.state_dict()), f"{folder}/{number}.safetensors")
save_file(results, folder + "/results.safetensors")
)";

struct Trial {
  explicit Trial(at::ScalarType type) : dtype(type) {
    torch::manual_seed(3);
    for (const char* name : {"a", "b"}) {
      const std::vector<std::int64_t> shape =
          *name == 'a' ? std::vector<std::int64_t>{6, 9} : std::vector<std::int64_t>{13};
      std::vector<std::int64_t> all = shape;
      all.insert(all.begin(), STEPS);
      inputs.emplace_back(name, torch::randn(shape, at::kDouble).to(type));
      inputs.emplace_back(std::string("g") + name, torch::randn(all, at::kDouble).to(type));
    }
    save_state_dict(inputs, folder / "inputs.safetensors");
  }

  void python(int first, int last, const char* load) const {
    std::vector<std::string> arguments = {folder.path(), std::to_string(first), std::to_string(last),
                                          dtype == at::kDouble ? "float64" : "float32", load};
    for (const Case& c : cases()) arguments.push_back(c.python);
    run_python(TRAIN, arguments);
  }

  std::vector<at::Tensor> start() const { return {inputs[0].second.clone(), inputs[2].second.clone()}; }

  void train(Optimizer& optimizer, const std::vector<at::Tensor>& ps, int first, int last) const {
    for (int s = first; s < last; ++s) {
      for (std::size_t i = 0; i < 2; ++i) ps[i].mutable_grad() = inputs[2 * i + 1].second[s];
      optimizer.step();
    }
  }

  void compare(std::size_t number, const std::vector<at::Tensor>& ps, const NamedTensors& results) const {
    for (const auto& [name, expected] : results) {
      for (std::size_t i = 0; i < 2; ++i) {
        if (name != std::to_string(number) + (i == 0 ? ".a" : ".b")) continue;
        const double distance = ((ps[i] - expected).abs().max() / expected.abs().max()).item<double>();
        EXPECT_LE(distance, dtype == at::kDouble ? 1e-12 : 1e-4) << cases()[number].python << ' ' << name;
      }
    }
  }

  at::ScalarType dtype;
  TempFolder folder;
  NamedTensors inputs;  // a, ga, b, gb
};

TEST(OptimizerPython, TheSameWeightsAfterHundredSteps) {
  for (const auto dtype : {at::kDouble, at::kFloat}) {
    const Trial trial(dtype);
    trial.python(0, STEPS, "fresh");
    const NamedTensors results = load_tensors(trial.folder / "results.safetensors");
    ASSERT_EQ(results.size(), 2 * cases().size());
    for (std::size_t i = 0; i < cases().size(); ++i) {
      const auto ps = trial.start();
      const auto optimizer = cases()[i].make(ps);
      trial.train(*optimizer, ps, 0, STEPS);
      trial.compare(i, ps, results);
    }
  }
}

TEST(OptimizerPython, ContinuesWhatLockstepBegan) {
  const Trial trial(at::kDouble);
  NamedTensors start;
  std::vector<std::vector<at::Tensor>> expected;
  for (std::size_t i = 0; i < cases().size(); ++i) {
    const auto ps = trial.start();
    const auto optimizer = cases()[i].make(ps);
    trial.train(*optimizer, ps, 0, 40);
    save_state_dict(optimizer->state_dict(), trial.folder / (std::to_string(i) + ".safetensors"));
    start.emplace_back(std::to_string(i) + ".a", ps[0].clone());
    start.emplace_back(std::to_string(i) + ".b", ps[1].clone());
    trial.train(*optimizer, ps, 40, STEPS);
    expected.push_back(ps);
  }
  save_state_dict(start, trial.folder / "start.safetensors");
  trial.python(40, STEPS, "load");
  const NamedTensors results = load_tensors(trial.folder / "results.safetensors");
  for (std::size_t i = 0; i < cases().size(); ++i) trial.compare(i, expected[i], results);
}

TEST(OptimizerPython, LockstepContinuesWhatPythonBegan) {
  const Trial trial(at::kDouble);
  trial.python(0, 40, "fresh");
  const NamedTensors between = load_tensors(trial.folder / "results.safetensors");
  std::vector<NamedTensors> states;
  for (std::size_t i = 0; i < cases().size(); ++i)
    states.push_back(load_tensors(trial.folder / (std::to_string(i) + ".safetensors")));
  trial.python(0, STEPS, "fresh");
  const NamedTensors results = load_tensors(trial.folder / "results.safetensors");
  for (std::size_t i = 0; i < cases().size(); ++i) {
    auto ps = trial.start();
    const auto optimizer = cases()[i].make(ps);
    for (const auto& [name, value] : between) {
      if (name == std::to_string(i) + ".a") ps[0].copy_(value);
      if (name == std::to_string(i) + ".b") ps[1].copy_(value);
    }
    optimizer->load_state_dict(states[i]);
    trial.train(*optimizer, ps, 40, STEPS);
    trial.compare(i, ps, results);
  }
}

// The names of torch.distributed.checkpoint.
const char* const TRAIN_BY_NAME = R"(
import sys, torch
from safetensors.torch import save_file
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict
torch.manual_seed(2)
net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 1)).double()
optimizer = torch.optim.AdamW(net.parameters(), 0.05)
def train(steps):
    for _ in range(steps):
        optimizer.zero_grad()
        net(torch.ones(4, 3, dtype=torch.double)).pow(2).sum().backward()
        optimizer.step()
train(3)
save_file(net.state_dict(), sys.argv[1] + "/model.safetensors")
state = get_optimizer_state_dict(net, optimizer, options=StateDictOptions(flatten_optimizer_state_dict=True))
save_file({name: torch.as_tensor(value, dtype=torch.float64 if isinstance(value, (float, tuple)) else None).clone()
           for name, value in state.items() if value is not None}, sys.argv[1] + "/optimizer.safetensors")
train(3)
save_file({name: value.clone() for name, value in net.state_dict().items()}, sys.argv[1] + "/after.safetensors")
)";

TEST(OptimizerPython, LockstepContinuesByNameWhatPythonBegan) {
  const TempFolder folder;
  run_python(TRAIN_BY_NAME, {folder.path()});
  NamedTensors model = load_tensors(folder / "model.safetensors");
  std::map<std::string, at::Tensor> p;
  for (auto& [name, tensor] : model) p[name] = tensor.clone().requires_grad_(true);
  AdamW optimizer(NamedTensors(p.begin(), p.end()), AdamWOptions(1));
  optimizer.load_state_dict(load_tensors(folder / "optimizer.safetensors"));
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    const at::Tensor hidden = torch::ones({4, 3}, at::kDouble).mm(p["0.weight"].t()) + p["0.bias"];
    (hidden.mm(p["1.weight"].t()) + p["1.bias"]).pow(2).sum().backward();
    optimizer.step();
  }
  for (const auto& [name, expected] : load_tensors(folder / "after.safetensors"))
    EXPECT_TRUE(torch::allclose(p[name], expected, 1e-10, 1e-12)) << name;
}

}  // namespace
}  // namespace lockstep::optim

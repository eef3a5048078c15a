#include "lockstep/tensor/random_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/base/error.h"
#include "lockstep/tensor/state_dict.h"
#include "testing/python.h"
#include "testing/temp_folder.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing::run_python;
using testing::TempFolder;

// Dropout, numbers of two distributions, and a permutation: all that draws from the default generator.
std::vector<at::Tensor> drawn() {
  return {torch::dropout(torch::ones({257}), 0.5, true), torch::rand({3}, at::kDouble), torch::randn({17}),
          torch::randn({1}), torch::randperm(33)};
}

TEST(RandomState, GoesOnWithEqualBits) {
  torch::manual_seed(5);
  drawn();  // leaves one of a pair of normal numbers in the generator
  const at::Tensor state = get_rng_state();
  EXPECT_EQ(state.scalar_type(), at::kByte);
  EXPECT_EQ(state.numel(), 5056);
  const auto expected = drawn();
  torch::manual_seed(6);
  drawn();
  set_rng_state(state);
  const auto found = drawn();
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(torch::equal(found[i], expected[i])) << i;
}

TEST(RandomState, IsACopy) {
  torch::manual_seed(5);
  const at::Tensor state = get_rng_state();
  const at::Tensor before = state.clone();
  drawn();
  EXPECT_TRUE(torch::equal(state, before));
  EXPECT_FALSE(torch::equal(get_rng_state(), before));
}

// Python begins and this process goes on, and the other way round.
const char* const DRAW = R"(
import sys, torch
from safetensors.torch import load_file, save_file
folder, order = sys.argv[1:]
def drawn():
    return {"dropout": torch.dropout(torch.ones(257), 0.5, True), "rand": torch.rand(3, dtype=torch.float64), "randn": torch.randn(17),
            "one": torch.randn(1), "permutation": torch.randperm(33)}
if order == "first":
    torch.manual_seed(5)
    drawn()
    state = torch.get_rng_state()
else:
    state = load_file(folder + "/ours.safetensors")["state"]
    torch.set_rng_state(state)
save_file({"state": state, **drawn()}, folder + "/python.safetensors")
)";

void expect_pythons(const TempFolder& folder, const at::Tensor& state,
                    const std::vector<at::Tensor>& values) {
  std::map<std::string, at::Tensor> python;
  for (const auto& [name, tensor] : load_tensors(folder / "python.safetensors")) python[name] = tensor;
  EXPECT_TRUE(torch::equal(python.at("state"), state));
  const std::vector<std::string> names = {"dropout", "rand", "randn", "one", "permutation"};
  for (std::size_t i = 0; i < names.size(); ++i)
    EXPECT_TRUE(torch::equal(python.at(names[i]), values[i])) << names[i];
}

TEST(RandomState, HasPythonsBytes) {
  const TempFolder folder;
  run_python(DRAW, {folder.path(), "first"});
  torch::manual_seed(5);
  drawn();
  const at::Tensor state = get_rng_state();
  expect_pythons(folder, state, drawn());
  save_state_dict({{"state", get_rng_state()}}, folder / "ours.safetensors");
  run_python(DRAW, {folder.path(), "second"});
  const at::Tensor second = get_rng_state();
  expect_pythons(folder, second, drawn());
}

TEST(RandomState, WhatIsNoStateIsRefused) {
  torch::manual_seed(5);
  const at::Tensor before = get_rng_state();
  const auto expect_refused = [&](const at::Tensor& state, const std::string& text) {
    try {
      set_rng_state(state);
      ADD_FAILURE() << "was taken: " << text;
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr(text));
    }
    EXPECT_TRUE(torch::equal(get_rng_state(), before));
  };
  expect_refused({}, "undefined");
  expect_refused(torch::zeros({5056}), "this one is Float of shape [5056]");
  expect_refused(torch::zeros({10}, at::kByte), "5056 bytes");
  expect_refused(torch::full({5056}, 255, at::kByte), "set_rng_state: ");
}

TEST(RandomState, HasOneStateForEachCudaDevice) {
  const std::vector<at::Tensor> states = get_rng_state_all();
  EXPECT_EQ(states.size(), at::hasCUDA() ? at::getNumGPUs() : 0U);
  set_rng_state_all(states);
  std::vector<at::Tensor> more = states;
  more.push_back(get_rng_state());
  EXPECT_THROW(set_rng_state_all(more), InvalidArgument);
}

}  // namespace
}  // namespace lockstep

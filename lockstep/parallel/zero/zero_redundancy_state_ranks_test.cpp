// State that is shared out is the whole optimiser's, wherever it is saved and loaded.
#include <gmock/gmock.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>

#include <map>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/load_checkpoint.h"
#include "lockstep/checkpoint/save_checkpoint.h"
#include "lockstep/job/groups.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/lamb.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/parallel/zero/zero_redundancy_optimizer.h"
#include "lockstep/tensor/state_dict.h"
#include "testing/ranks.h"
#include "testing/shared_folder.h"
#include "testing/shared_out_training.h"

namespace lockstep {
namespace {

using testing::backward_of_all;
using ::testing::HasSubstr;
using testing::known_parameters;
using testing::SharedFolder;
using ::testing::ThrowsMessage;

// Of two groups; the gradients are those of two ranks' inputs, whatever rank makes the step.
template <typename Optimizer> struct InTwoGroups {
  template <typename Options, typename... More>
  explicit InTwoGroups(const Options& options, const More&... more)
      : parameters(known_parameters()), optimizer(groups(), options, more...) {}

  std::vector<optim::ParamGroup> groups() const {
    std::vector<optim::ParamGroup> two;
    two.emplace_back(std::vector<at::Tensor>(parameters.begin(), parameters.begin() + 3));
    two.emplace_back(std::vector<at::Tensor>(parameters.begin() + 3, parameters.end()));
    return two;
  }
  void steps(int first, int last) {
    for (int i = first; i < last; ++i) {
      backward_of_all(parameters, 2, i);
      optimizer.param_groups()[1].options().set_lr(0.01 + 0.001 * i);
      optimizer.step();
    }
  }
  void expect_parameters_of(const auto& other, const char* what) const {
    for (std::size_t i = 0; i < parameters.size(); ++i)
      EXPECT_TRUE(parameters[i].equal(other.parameters[i])) << what << ", parameter " << i;
  }

  std::vector<at::Tensor> parameters;
  Optimizer optimizer;
};

void give_values(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from) {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i]);
}

void expect_same_entries(const NamedTensors& have, const NamedTensors& want) {
  const std::map<std::string, at::Tensor> found(have.begin(), have.end());
  EXPECT_EQ(have.size(), want.size());
  for (const auto& [name, tensor] : want) {
    const auto entry = found.find(name);
    ASSERT_NE(entry, found.end()) << name;
    EXPECT_EQ(entry->second.scalar_type(), tensor.scalar_type()) << name;
    EXPECT_TRUE(entry->second.equal(tensor)) << name;
  }
}

template <typename Local, typename Options>
void expect_consolidated(const Options& options, const ProcessGroup& group) {
  InTwoGroups<Local> whole(options);
  InTwoGroups<ZeroRedundancyOptimizer<Local>> shared(options);
  whole.steps(0, 3);
  shared.steps(0, 3);
  for (int to = 0; to < group.size(); ++to) {
    shared.optimizer.consolidate_state_dict(to);
    if (group.rank() == to) {
      expect_same_entries(shared.optimizer.state_dict(), state_dict(whole.optimizer));
      expect_same_entries(state_dict(static_cast<torch::optim::Optimizer&>(shared.optimizer)),
                          state_dict(whole.optimizer));
    } else {
      EXPECT_THAT([&] { (void)shared.optimizer.state_dict(); },
                  ThrowsMessage<InvalidArgument>(HasSubstr("call consolidate_state_dict(" +
                                                           std::to_string(group.rank()) + ") on all ranks")));
    }
  }
  shared.steps(3, 4);
  EXPECT_THROW((void)shared.optimizer.state_dict(), InvalidArgument);
}

RANKS_TEST(ZeroRedundancyState, IsConsolidatedToAnyRank, Ranks(1, 2, 3, 4), Backends("shm", "tcp")) {
  expect_consolidated<optim::AdamW>(optim::AdamWOptions(0.01).amsgrad(true), world());
  expect_consolidated<optim::SGD>(optim::SGDOptions(0.01).momentum(0.9), world());
  expect_consolidated<optim::LAMB>(optim::LAMBOptions(0.01), world());
  expect_consolidated<torch::optim::Adam>(torch::optim::AdamOptions(0.01), world());
}

// Saved by `group`, loaded by every smaller group, by the whole optimiser, and the other way round: the same
// bits as without a stop.
template <typename Local, typename Options>
void expect_loaded(const Options& options, const ProcessGroup& group) {
  InTwoGroups<Local> whole(options);
  whole.steps(0, 3);
  const auto values = known_parameters();
  give_values(values, whole.parameters);
  const NamedTensors saved = state_dict(whole.optimizer);
  NamedTensors copy;
  for (const auto& [name, tensor] : saved) copy.emplace_back(name, tensor.clone());
  whole.steps(3, 5);
  const Options other(0.5);  // what is loaded replaces it
  for (int ranks = 1; ranks <= group.size(); ++ranks) {
    std::vector<int> members(static_cast<std::size_t>(ranks));
    std::iota(members.begin(), members.end(), 0);
    const ProcessGroup some = new_group(members);
    if (!some.is_member()) continue;
    InTwoGroups<ZeroRedundancyOptimizer<Local>> shared(other, ZeroRedundancyOptions{.process_group = some});
    shared.steps(7, 9);  // a state that must go
    give_values(shared.parameters, values);
    shared.optimizer.load_state_dict(copy);
    EXPECT_EQ(shared.optimizer.param_groups()[0].options().get_lr(), 0.01);
    shared.steps(3, 5);
    shared.expect_parameters_of(whole, "loaded");
  }
}

RANKS_TEST(ZeroRedundancyState, OfTheWholeOptimizerIsLoadedByAnyNumberOfRanks, Ranks(1, 2, 3, 4)) {
  expect_loaded<optim::AdamW>(optim::AdamWOptions(0.01), world());
  expect_loaded<torch::optim::SGD>(torch::optim::SGDOptions(0.01).momentum(0.9), world());
}

template <typename Local, typename Options>
void expect_torch_save(const Options& options, const ProcessGroup& group) {
  const SharedFolder folder(group);
  InTwoGroups<ZeroRedundancyOptimizer<Local>> shared(options);
  shared.steps(0, 3);
  shared.optimizer.consolidate_state_dict(0);
  if (group.rank() == 0) torch::save(shared.optimizer, folder / "shared.pt");
  if (group.rank() != 0) EXPECT_THROW(torch::save(shared.optimizer, folder / "not.pt"), InvalidArgument);
  comm::barrier(group);
  InTwoGroups<Local> whole(options);
  give_values(whole.parameters, shared.parameters);
  torch::load(whole.optimizer, folder / "shared.pt");
  InTwoGroups<ZeroRedundancyOptimizer<Local>> again(options);
  give_values(again.parameters, shared.parameters);
  torch::load(again.optimizer, folder / "shared.pt");
  shared.steps(3, 5);
  whole.steps(3, 5);
  again.steps(3, 5);
  shared.expect_parameters_of(whole, "the whole optimiser");
  shared.expect_parameters_of(again, "shared out again");
}

RANKS_TEST(ZeroRedundancyState, IsInTheFilesOfTorchSave, Ranks(1, 2, 3)) {
  expect_torch_save<optim::AdamW>(optim::AdamWOptions(0.01), world());
  expect_torch_save<torch::optim::Adam>(torch::optim::AdamOptions(0.01), world());
}

// Reads of a checkpoint, by name.
template <typename Local, typename Options>
void expect_checkpoints(const Options& options, const ProcessGroup& group) {
  const SharedFolder folder(group);
  InTwoGroups<ZeroRedundancyOptimizer<Local>> shared(options);
  InTwoGroups<Local> whole(options);
  shared.steps(0, 3);
  whole.steps(0, 3);
  CheckpointState of_shared;
  of_shared.add("optimizer", shared.optimizer);
  CheckpointState of_whole;
  of_whole.add("optimizer", static_cast<torch::optim::Optimizer&>(whole.optimizer));
  save_checkpoint(folder / "shared", of_shared, {.step = 1});
  save_checkpoint(folder / "whole", of_whole, {.step = 1});
  const auto values = known_parameters();
  give_values(values, shared.parameters);
  shared.steps(3, 5);
  for (int ranks = 1; ranks <= group.size(); ++ranks) {
    std::vector<int> members(static_cast<std::size_t>(ranks));
    std::iota(members.begin(), members.end(), 0);
    const ProcessGroup some = new_group(members);
    if (!some.is_member()) continue;
    for (const char* const from : {"shared", "whole"}) {
      InTwoGroups<ZeroRedundancyOptimizer<Local>> again(Options(0.5),
                                                        ZeroRedundancyOptions{.process_group = some});
      give_values(again.parameters, values);
      CheckpointState state;
      state.add("optimizer", static_cast<torch::optim::Optimizer&>(again.optimizer));
      load_checkpoint(folder / from, state, {.process_group = some});
      again.steps(3, 5);
      again.expect_parameters_of(shared, from);
    }
  }
  InTwoGroups<Local> again(Options(0.5));
  give_values(again.parameters, values);
  CheckpointState state;
  state.add("optimizer", again.optimizer);
  load_checkpoint(folder / "shared", state, {});
  again.steps(3, 5);
  again.expect_parameters_of(shared, "without sharing");
}

RANKS_TEST(ZeroRedundancyState, InACheckpointIsLoadedByAnyNumberOfRanks, Ranks(1, 2, 3, 4)) {
  expect_checkpoints<optim::AdamW>(optim::AdamWOptions(0.01), world());
  expect_checkpoints<torch::optim::SGD>(torch::optim::SGDOptions(0.01).momentum(0.9), world());
}

RANKS_TEST(ZeroRedundancyState, OfACheckpointIsWrittenByItsOwnersAndReadByThem, Ranks(2, 3)) {
  InTwoGroups<ZeroRedundancyOptimizer<optim::AdamW>> shared(optim::AdamWOptions(0.01));
  shared.steps(0, 1);
  const auto item = shared.optimizer.checkpoint_item();
  std::int64_t elements = 0;
  for (const TensorShard& shard : item->contents().shards) {
    EXPECT_TRUE(item->wants(shard.name)) << shard.name;
    if (shard.name.ends_with(".exp_avg")) elements += shard.tensor.numel();
  }
  EXPECT_EQ(elements, shared.optimizer.partition().elements[static_cast<std::size_t>(rank())]);
  int wanted = 0;
  for (int i = 0; i < 6; ++i) wanted += item->wants("state." + std::to_string(i) + ".exp_avg") ? 1 : 0;
  EXPECT_EQ(static_cast<std::size_t>(wanted), item->contents().shards.size() / 3);  // step and two averages
  EXPECT_TRUE(item->wants("param_groups.1.lr"));
}

RANKS_TEST(ZeroRedundancyState, ThatDoesNotFitIsRefusedOnAllRanks, Ranks(1, 2, 3)) {
  InTwoGroups<optim::AdamW> whole(optim::AdamWOptions(0.01));
  whole.steps(0, 1);
  InTwoGroups<ZeroRedundancyOptimizer<optim::AdamW>> shared(optim::AdamWOptions(0.01));
  const auto refuses = [&](const std::string& text, const auto& change) {
    NamedTensors state = whole.optimizer.state_dict();
    change(state);
    EXPECT_THAT([&] { shared.optimizer.load_state_dict(state); },
                ThrowsMessage<InvalidArgument>(HasSubstr(text)));
  };
  refuses("it has no param_groups.0.params", [](NamedTensors& state) { state.clear(); });
  refuses("the state has 3 parameter groups, the optimiser 2", [](NamedTensors& state) {
    state.emplace_back("param_groups.2.params", at::zeros({0}, at::kLong));
  });
  refuses("group 0 has 2 parameters in the state and 3 here", [](NamedTensors& state) {
    for (auto& [name, tensor] : state)
      if (name == "param_groups.0.params") tensor = at::arange(2, at::kLong);
  });
  refuses("there is state of parameter 9, which no group has",
          [](NamedTensors& state) { state.emplace_back("state.9.exp_avg", at::zeros({2})); });
  refuses("state.3.exp_avg has shape [2] and the parameter here [5, 2, 3]", [](NamedTensors& state) {
    for (auto& [name, tensor] : state)
      if (name == "state.3.exp_avg") tensor = at::zeros({2});
  });
}

}  // namespace
}  // namespace lockstep

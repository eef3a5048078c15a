// Checkpoints of ShardedDataParallel: loaded by any number of ranks, and by a model that each rank holds
// whole.
#include <gmock/gmock.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include "lockstep/checkpoint/load_checkpoint.h"
#include "lockstep/checkpoint/save_checkpoint.h"
#include "lockstep/comm/collectives/barrier.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/parallel/ddp/distributed_data_parallel.h"
#include "lockstep/parallel/zero/sharded_data_parallel.h"
#include "testing/ranks.h"
#include "testing/shared_folder.h"
#include "testing/tensors.h"

namespace lockstep {
namespace {

using testing::random_values;
using testing::SharedFolder;

// The second weight is cut over ranks, in the middle of a row.
torch::nn::Sequential make_net(int seed) {
  torch::manual_seed(static_cast<std::uint64_t>(seed));
  return torch::nn::Sequential(torch::nn::Linear(30, 301), torch::nn::BatchNorm1d(301),
                               torch::nn::Linear(301, 701), torch::nn::Linear(701, 2));
}

at::Tensor input(int step) { return random_values({6, 30}, static_cast<std::uint64_t>(step), at::kFloat); }

// The same inputs on every rank: the number of ranks does not show in the results, but for rounding that a
// power of two does not make.
template <typename Model, typename Optimizer>
void train(Model& model, Optimizer& optimizer, int from, int to) {
  for (int step = from; step < to; ++step) {
    optimizer.zero_grad();
    model.forward(input(step)).pow(2).sum().backward();
    optimizer.step();
  }
}

std::vector<at::Tensor> values_of(torch::nn::Sequential& net) {
  std::vector<at::Tensor> values;
  for (const auto& item : net->named_parameters()) values.push_back(item.value().detach().clone());
  for (const auto& item : net->named_buffers()) values.push_back(item.value().detach().clone());
  return values;
}

void expect_equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b,
                  const std::string& what) {
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i].equal(b[i])) << what << ' ' << i;
}

const optim::AdamWOptions OPTIONS(1e-2);

struct Sharded {
  explicit Sharded(const ProcessGroup& group, int seed)
      : net(make_net(seed)),
        model(net.ptr(), {.process_group = group}),
        optimizer(model.optimizer<optim::AdamW>(OPTIONS)) {
    state.add("model", model).add("optimizer", optimizer);
  }
  torch::nn::Sequential net;
  ShardedDataParallel<torch::nn::SequentialImpl> model;
  ShardedOptimizer<optim::AdamW> optimizer;
  CheckpointState state;
};

struct Replicated {
  explicit Replicated(const ProcessGroup& group, int seed)
      : net(make_net(seed)),
        model(net.ptr(), {.process_group = group}),
        optimizer(model.named_parameters().pairs(), OPTIONS) {
    state.add("model", *net).add("optimizer", optimizer);
  }
  torch::nn::Sequential net;
  DistributedDataParallel<torch::nn::SequentialImpl> model;
  optim::AdamW optimizer;
  CheckpointState state;
};

constexpr int SAVED = 3, END = 6;

// Trains, saves, and trains on: what it ends with.
template <typename Kind>
std::vector<at::Tensor> save_and_go_on(const ProcessGroup& group, const std::string& folder) {
  Kind run(group, 1);
  train(run.model, run.optimizer, 0, SAVED);
  save_checkpoint(folder, run.state, {.step = SAVED, .process_group = group});
  train(run.model, run.optimizer, SAVED, END);
  return values_of(run.net);
}

template <typename Kind>
std::vector<at::Tensor> load_and_go_on(const ProcessGroup& group, const std::string& folder) {
  Kind run(group, 2 + group.rank());
  EXPECT_TRUE(load_checkpoint(folder, run.state, {.process_group = group}));
  train(run.model, run.optimizer, SAVED, END);
  return values_of(run.net);
}

RANKS_TEST(ShardedCheckpoint, GoesOnWithTheSameBits, Ranks(1, 2, 3, 4), Backends("shm", "hierarchical")) {
  torch::set_num_threads(1);
  const SharedFolder folder(world());
  const auto expected = save_and_go_on<Sharded>(world(), folder.path());
  expect_equal(load_and_go_on<Sharded>(world(), folder.path()), expected, "as saved");
  expect_equal(load_and_go_on<Replicated>(world(), folder.path()), expected, "with replicas");
}

RANKS_TEST(ShardedCheckpoint, IsOneWithReplicas, Ranks(1, 2, 3)) {
  torch::set_num_threads(1);
  const SharedFolder folder(world());
  const auto expected = save_and_go_on<Replicated>(world(), folder.path());
  expect_equal(load_and_go_on<Sharded>(world(), folder.path()), expected, "saved by replicas");
}

// Saved by two ranks and loaded by four, and the other way round: averages of equal gradients are exact
// there.
RANKS_TEST(ShardedCheckpoint, IsLoadedByOtherNumbersOfRanks, Ranks(4)) {
  torch::set_num_threads(1);
  const SharedFolder folder(world());
  const ProcessGroup pair(world().backend().split({{0, 1}, {2, 3}}, "pairs", {}),
                          rank() < 2 ? std::vector<int>{0, 1} : std::vector<int>{2, 3});
  const auto expected = save_and_go_on<Sharded>(world(), folder / "four");
  if (rank() < 2) {
    expect_equal(load_and_go_on<Sharded>(pair, folder / "four"), expected, "four to two");
    expect_equal(save_and_go_on<Sharded>(pair, folder / "two"), expected, "two alone");
  }
  comm::barrier(world());
  expect_equal(load_and_go_on<Sharded>(world(), folder / "two"), expected, "two to four");
}

}  // namespace
}  // namespace lockstep

// ShardedDataParallel with float32 masters of 16-bit parameters, beside replicas whose masters are stepped on
// every rank.
#include "lockstep/parallel/zero/master_weights.h"

#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>
#include <limits>

#include "lockstep/checkpoint/load_checkpoint.h"
#include "lockstep/checkpoint/save_checkpoint.h"
#include "lockstep/comm/collectives/barrier.h"
#include "lockstep/job/groups.h"
#include "lockstep/job/job.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/clip_grad.h"
#include "lockstep/optim/lamb.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/parallel/ddp/distributed_data_parallel.h"
#include "lockstep/parallel/zero/sharded_data_parallel.h"
#include "lockstep/tensor/collectives.h"
#include "testing/ranks.h"
#include "testing/shared_folder.h"
#include "testing/tensors.h"

namespace lockstep {
namespace masters {
namespace {

using testing::random_values;
using testing::SharedFolder;
using Net = torch::nn::Sequential;
using Values = std::vector<at::Tensor>;

constexpr int STEPS = 4;
const ShardedDataParallelOptions WITH_MASTERS{.master_weights = true};

// The second weight is cut over ranks.
Net make_net(at::ScalarType type) {
  torch::manual_seed(7);
  Net net(torch::nn::Linear(30, 301), torch::nn::Linear(301, 701), torch::nn::Linear(701, 2));
  net->to(type);
  return net;
}

at::Tensor loss_of(const at::Tensor& output) { return output.to(at::kFloat).pow(2).mean(); }

at::Tensor input(int step, at::ScalarType type) {
  return random_values({6, 30},
                       10 * static_cast<std::uint64_t>(step) + static_cast<std::uint64_t>(get_rank()), type);
}

Values values_of(const Net& net) {
  Values values;
  for (const at::Tensor& parameter : net->parameters()) values.push_back(parameter.detach().clone());
  return values;
}

void expect_equal(const Values& a, const Values& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i].equal(b[i])) << "parameter " << i;
}

// Each rank has all masters and steps all of them by the average that DistributedDataParallel leaves.
template <typename Optimizer, typename Options>
Values train_replicas(const Options& options, at::ScalarType type, double clip) {
  Net net = make_net(type);
  DistributedDataParallel model(net);
  NamedTensors masters;
  for (const auto& item : net->named_parameters())
    masters.emplace_back(item.key(), item.value().detach().to(at::kFloat).requires_grad_());
  Optimizer optimizer(masters, options);
  for (int step = 0; step < STEPS; ++step) {
    net->zero_grad();
    loss_of(model->forward(input(step, type))).backward();
    Values parameters = net->parameters();
    for (std::size_t i = 0; i < masters.size(); ++i)
      masters[i].second.mutable_grad() = parameters[i].grad().to(at::kFloat);
    if (clip > 0) clip_grad_norm_(tensors_of(masters), clip);
    optimizer.step();
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < masters.size(); ++i) parameters[i].copy_(masters[i].second);
  }
  return values_of(net);
}

template <typename Optimizer, typename Options>
Values train_shards(const Options& options, at::ScalarType type, double clip) {
  Net net = make_net(type);
  ShardedDataParallel model(net, WITH_MASTERS);
  auto optimizer = model.template optimizer<Optimizer>(options);
  for (int step = 0; step < STEPS; ++step) {
    loss_of(model->forward(input(step, type))).backward();
    if (clip > 0) model.clip_grad_norm_(clip);
    optimizer.step();
  }
  return values_of(net);
}

template <typename Optimizer, typename Options> void expect_bits_of_replicas(const Options& options) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    for (const double clip : {0.0, 0.05})
      expect_equal(train_shards<Optimizer>(options, type, clip),
                   train_replicas<Optimizer>(options, type, clip));
  }
}

RANKS_TEST(MasterWeights, HaveTheBitsOfReplicasWithAdamW, Ranks(1, 2, 3, 4)) {
  expect_bits_of_replicas<optim::AdamW>(optim::AdamWOptions(1e-3).weight_decay(0.1));
}
RANKS_TEST(MasterWeights, HaveTheBitsOfReplicasWithMomentum, Ranks(2, 3)) {
  expect_bits_of_replicas<optim::SGD>(optim::SGDOptions(0.05).momentum(0.9).nesterov(true));
}
// It averages first, and does not write the parameters as it steps.
RANKS_TEST(MasterWeights, HaveTheBitsOfReplicasWithLamb, Ranks(2, 3)) {
  expect_bits_of_replicas<optim::LAMB>(optim::LAMBOptions(1e-2));
}
RANKS_TEST(MasterWeights, HaveTheBitsOfReplicasByMessages, Ranks(2, 3, 4), Backends("tcp", "hierarchical")) {
  expect_bits_of_replicas<optim::AdamW>(optim::AdamWOptions(1e-3));
}

// bfloat16 has no number between 1 and 1 - 2^-8: 30 steps of 2^-12 are lost one by one, and together are 2^-7
// less 2^-11, which rounds to 2^-7.
RANKS_TEST(MasterWeights, AddUpWhatSixteenBitsLose, Ranks(1, 2, 3, 4)) {
  for (const bool wanted : {false, true}) {
    Net net{torch::nn::Linear(torch::nn::LinearOptions(1, 5).bias(false))};
    net->to(at::kBFloat16);
    torch::nn::init::constant_(net->parameters()[0], 1);
    ShardedDataParallel model(net, {.master_weights = wanted});
    auto optimizer = model.optimizer<optim::SGD>(optim::SGDOptions(std::pow(2.0, -12)));
    for (int step = 0; step < 30; ++step) {
      model->forward(at::ones({1, 1}, at::kBFloat16)).sum().backward();  // a gradient of 1
      optimizer.step();
    }
    const double expected = wanted ? 1 - std::pow(2.0, -7) : 1;
    EXPECT_TRUE(net->parameters()[0].eq(expected).all().item<bool>()) << net->parameters()[0];
  }
}

RANKS_TEST(MasterWeights, AreFourBytesAnElementOfThisRanksPart, Ranks(1, 2, 4)) {
  Net net = make_net(at::kBFloat16);
  ShardedDataParallel model(net, WITH_MASTERS);
  const at::Tensor sum = at::scalar_tensor(model.memory().masters, at::kDouble);
  all_reduce(sum);
  double elements = 0;
  for (const at::Tensor& parameter : net->parameters()) elements += static_cast<double>(parameter.numel());
  EXPECT_EQ(sum.item<double>(), 4 * elements);
}

// What somebody else writes into a parameter counts; what he leaves keeps its 32 bits.
RANKS_TEST(MasterWeights, FollowWhatIsWritten, Ranks(1, 2, 3)) {
  at::Tensor part = at::tensor({1.0, 2.0, 3.0}).to(at::kBFloat16).requires_grad_();
  MasterWeights masters;
  masters.keep({part}, {.widens = true});
  const at::NoGradGuard no_grad;
  masters.of(0).copy_(at::tensor({1.0 + 1e-4, 2.0 + 1e-4, std::numeric_limits<double>::quiet_NaN()}));
  masters.round();
  part[1] = 5;
  masters.follow();
  EXPECT_EQ(masters.of(0)[0].item<float>(), 1.0F + 1e-4F);
  EXPECT_EQ(masters.of(0)[1].item<float>(), 5);
  EXPECT_TRUE(masters.of(0)[2].isnan().item<bool>());
}

struct Run {
  explicit Run(const ProcessGroup& group)
      : net(make_net(at::kBFloat16)),
        model(net.ptr(), {.process_group = group, .master_weights = true}),
        optimizer(model.optimizer<optim::AdamW>(optim::AdamWOptions(1e-4))) {}
  void train(int from, int to) {
    for (int step = from; step < to; ++step) {
      loss_of(model.forward(random_values({6, 30}, static_cast<std::uint64_t>(step), at::kBFloat16)))
          .backward();
      optimizer.step();
    }
  }
  Net net;
  ShardedDataParallel<torch::nn::SequentialImpl> model;
  ShardedOptimizer<optim::AdamW> optimizer;
};

// In either order of the items, and by any number of ranks.
RANKS_TEST(MasterWeights, GoOnFromACheckpoint, Ranks(1, 2, 3, 4)) {
  const SharedFolder folder(world());
  Run whole(world());
  whole.train(0, 2);
  CheckpointState saved;
  saved.add("model", whole.model).add("optimizer", whole.optimizer);
  save_checkpoint(folder.path(), saved, {.step = 2});
  whole.train(2, 5);
  const auto alone = new_subgroups(1).mine;
  for (const ProcessGroup& group : std::vector<ProcessGroup>{world(), alone}) {
    for (const bool model_first : {true, false}) {
      Run again(group);
      again.train(7, 8);  // has other masters, moments and counts
      CheckpointState state;
      if (model_first) {
        state.add("model", again.model).add("optimizer", again.optimizer);
      } else {
        state.add("optimizer", again.optimizer).add("model", again.model);
      }
      load_checkpoint(folder.path(), state, {.process_group = group});
      again.train(2, 5);
      expect_equal(values_of(again.net), values_of(whole.net));
    }
  }
}

}  // namespace
}  // namespace masters
}  // namespace lockstep

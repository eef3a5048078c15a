// After the broadcast every rank goes on as an optimiser that has made the root's steps itself.
#include "lockstep/parallel/replicas/broadcast_optimizer_state.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include "lockstep/base/error.h"
#include "lockstep/job/groups.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/lamb.h"
#include "lockstep/optim/lars.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/optim/torch_optimizer_state.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::vector<at::Tensor> parameters(at::ScalarType dtype) {
  const at::Generator random = at::detail::createCPUGenerator(11);
  std::vector<at::Tensor> all;
  for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{4, 3}, {7}, {}})
    all.push_back(at::randn(shape, random, at::TensorOptions(at::kDouble)).to(dtype).requires_grad_());
  return all;
}

// The last parameter gets no gradient in the first step, so it has its state later than the others.
void step(torch::optim::Optimizer& optimizer, int number) {
  const at::Generator random = at::detail::createCPUGenerator(static_cast<std::uint64_t>(100 + number));
  for (auto& group : optimizer.param_groups())
    for (at::Tensor& parameter : group.params()) {
      const at::Tensor gradient =
          at::randn(parameter.sizes(), random, at::TensorOptions(at::kDouble)).to(parameter.scalar_type());
      parameter.mutable_grad() = number == 0 && parameter.dim() == 0 ? at::Tensor() : gradient;
    }
  optimizer.step();
}

void set_values(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from) {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i]);
}

// `steps`: of the root. What is expected is an optimiser that every rank steps for itself.
template <typename Optimizer, typename Options>
void expect_equal_steps(const Options& options, const Options& others_options, int steps,
                        at::ScalarType dtype, GroupRank root, const ProcessGroup& group) {
  const auto expected_values = parameters(dtype);
  Optimizer expected(expected_values, options);
  const auto values = parameters(dtype);
  Optimizer optimizer(values, group.rank() == root.rank ? options : others_options);
  for (int i = 0; i < steps; ++i) step(expected, i);
  if (group.rank() == root.rank) {
    for (int i = 0; i < steps; ++i) step(optimizer, i);
  } else if (group.rank() == group.size() - 1) {
    for (int i = 0; i < 2; ++i) step(optimizer, 50 + i);  // a state that must go
  }
  set_values(values, expected_values);
  broadcast_optimizer_state(optimizer, root, group);
  EXPECT_EQ(optimizer.param_groups()[0].options().get_lr(), expected.param_groups()[0].options().get_lr());
  const NamedTensors want = state_dict(expected);
  const NamedTensors have = state_dict(optimizer);
  ASSERT_EQ(have.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(have[i].first, want[i].first);
    EXPECT_EQ(have[i].second.scalar_type(), want[i].second.scalar_type()) << want[i].first;
    EXPECT_TRUE(have[i].second.equal(want[i].second)) << want[i].first;
  }
  for (int i = steps; i < steps + 3; ++i) {
    step(expected, i);
    step(optimizer, i);
  }
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_TRUE(values[i].equal(expected_values[i])) << "parameter " << i << " of " << dtype;
}

template <typename Optimizer, typename Options>
void expect_equal_steps(const Options& options, const Options& others, const ProcessGroup& group) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf})
    for (const int steps : {0, 1, 3})
      for (const int root : {0, group.size() - 1})
        expect_equal_steps<Optimizer>(options, others, steps, dtype, GroupRank{root}, group);
}

RANKS_TEST(BroadcastOptimizerState, OfLibtorchsOptimisers, Ranks(1, 2, 3, 4)) {
  using namespace torch::optim;  // NOLINT(google-build-using-namespace): names of the optimisers
  expect_equal_steps<SGD>(SGDOptions(0.1).momentum(0.9).weight_decay(0.01), SGDOptions(0.5), world());
  expect_equal_steps<Adam>(AdamOptions(0.1).amsgrad(true), AdamOptions(0.01).betas({0.5, 0.6}), world());
  expect_equal_steps<AdamW>(AdamWOptions(0.1).weight_decay(0.2), AdamWOptions(0.01), world());
  expect_equal_steps<RMSprop>(RMSpropOptions(0.1).momentum(0.9).centered(true), RMSpropOptions(0.3), world());
  expect_equal_steps<Adagrad>(AdagradOptions(0.1).lr_decay(0.1), AdagradOptions(0.3), world());
}

RANKS_TEST(BroadcastOptimizerState, OfOurs, Ranks(1, 2, 3, 4)) {
  using namespace optim;  // NOLINT(google-build-using-namespace)
  expect_equal_steps<optim::SGD>(optim::SGDOptions(0.1).momentum(0.9), optim::SGDOptions(0.5), world());
  expect_equal_steps<optim::Adam>(optim::AdamOptions(0.1).amsgrad(true), optim::AdamOptions(0.5), world());
  expect_equal_steps<optim::AdamW>(optim::AdamWOptions(0.1).weight_decay(0.2), optim::AdamWOptions(0.5),
                                   world());
  expect_equal_steps<optim::LARS>(optim::LARSOptions(0.1).momentum(0.9), optim::LARSOptions(0.5), world());
  expect_equal_steps<optim::LAMB>(optim::LAMBOptions(0.1), optim::LAMBOptions(0.5), world());
}

RANKS_TEST(BroadcastOptimizerState, OverEveryBackend, Ranks(1, 2, 3, 4), EveryBackend()) {
  expect_equal_steps<optim::AdamW>(optim::AdamWOptions(0.1), optim::AdamWOptions(0.5), 2, at::kFloat,
                                   GroupRank{size() - 1}, world());
}

// With two groups of parameters, each with options of its own, and a root that is a rank of the job.
RANKS_TEST(BroadcastOptimizerState, OfEveryGroupOfParameters, Ranks(3, 4)) {
  const ProcessGroup group = new_group({1, 2});
  const auto values = parameters(at::kFloat);
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<at::Tensor>{values[0]},
                      std::make_unique<torch::optim::AdamOptions>(rank() == 2 ? 0.25 : 1.0));
  groups.emplace_back(std::vector<at::Tensor>{values[1], values[2]},
                      std::make_unique<torch::optim::AdamOptions>(rank() == 2 ? 0.125 : 1.0));
  torch::optim::Adam optimizer(groups, torch::optim::AdamOptions(0.5));
  if (!group.is_member()) {
    EXPECT_THAT([&] { broadcast_optimizer_state(optimizer, 2, group); },
                ThrowsMessage<InvalidArgument>(HasSubstr("this process is not in the group")));
    return;
  }
  broadcast_optimizer_state(optimizer, 2, group);
  EXPECT_EQ(optimizer.param_groups()[0].options().get_lr(), 0.25);
  EXPECT_EQ(optimizer.param_groups()[1].options().get_lr(), 0.125);
}

// The reason of one rank reaches all, and the group stays usable.
RANKS_TEST(BroadcastOptimizerState, RefusesWhatDoesNotFitOnAllRanks, Ranks(2, 3, 4)) {
  const auto values = parameters(at::kFloat);
  const auto fewer = std::vector<at::Tensor>(values.begin(), values.begin() + (rank() == 1 ? 2 : 3));
  torch::optim::AdamW optimizer(fewer, torch::optim::AdamWOptions(0.1));
  step(optimizer, 1);
  EXPECT_THAT([&] { broadcast_optimizer_state(optimizer); },
              ThrowsMessage<InvalidArgument>(AllOf(
                  HasSubstr("broadcast_optimizer_state on group \"world\", rank " + std::to_string(rank())),
                  HasSubstr(": rank 1: "), HasSubstr("make the same optimiser over the same parameters"))));
  torch::optim::LBFGS history(values, torch::optim::LBFGSOptions(0.1));
  EXPECT_THAT([&] { broadcast_optimizer_state(history, size() - 1); },
              ThrowsMessage<InvalidArgument>(HasSubstr(": rank " + std::to_string(size() - 1) + ": ")));
  torch::optim::AdamW good(values, torch::optim::AdamWOptions(rank() == 0 ? 0.25 : 0.5));
  broadcast_optimizer_state(good);
  EXPECT_EQ(good.param_groups()[0].options().get_lr(), 0.25);
}

}  // namespace
}  // namespace lockstep

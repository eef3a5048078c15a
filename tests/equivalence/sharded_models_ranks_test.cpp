// Real architectures in ShardedDataParallel, beside DistributedDataParallel with the same optimiser, bit for
// bit.
#include <gmock/gmock.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <vector>

#include "lockstep/amp/grad_scaler.h"
#include "lockstep/base/error.h"
#include "lockstep/job/job.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/models/resnet.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/clip_grad.h"
#include "lockstep/optim/lamb.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/parallel/ddp/distributed_data_parallel.h"
#include "lockstep/parallel/zero/sharded_data_parallel.h"
#include "testing/ranks.h"
#include "testing/tensors.h"

namespace lockstep {
namespace sharded_models {
namespace {

using testing::random_values;

constexpr int STEPS = 3;
constexpr std::int64_t BATCH = 4;
constexpr double BUCKET_MB = 0.1;  // several buckets, and gradients that are larger than one

// Of one rank in one step.
std::uint64_t seed_of(int step) { return static_cast<std::uint64_t>(100 * step + get_rank()); }
at::Tensor targets(int step, std::int64_t count, std::int64_t classes) {
  return (at::arange(count, at::kLong) * 7 + step + 3 * get_rank()).remainder(classes);
}

struct Mlp {
  static auto make() {
    return torch::nn::Sequential(torch::nn::Linear(64, 300), torch::nn::ReLU(), torch::nn::Linear(300, 300),
                                 torch::nn::ReLU(), torch::nn::Linear(300, 10));
  }
  static at::Tensor loss(auto& model, int step) {
    const at::Tensor output = model.forward(random_values({BATCH, 64}, seed_of(step), at::kFloat));
    return torch::nn::functional::cross_entropy(output, targets(step, BATCH, 10));
  }
};

struct ResNet18 {
  static auto make() {
    return models::resnet18({.num_classes = 10, .stem = models::Stem::CIFAR, .width = 16});
  }
  static at::Tensor loss(auto& model, int step) {
    const at::Tensor output = model.forward(random_values({BATCH, 3, 16, 16}, seed_of(step), at::kFloat));
    return torch::nn::functional::cross_entropy(output, targets(step, BATCH, 10));
  }
};

struct Gpt2 {
  static constexpr std::int64_t TOKENS = 16, VOCABULARY = 97;
  static auto make() {
    return models::GPT2(models::GPT2Config{.vocab_size = VOCABULARY,
                                           .n_positions = TOKENS,
                                           .n_embd = 96,
                                           .n_layer = 2,
                                           .n_head = 4,
                                           .embd_pdrop = 0,
                                           .attn_pdrop = 0,
                                           .resid_pdrop = 0});
  }
  static at::Tensor loss(auto& model, int step) {
    const at::Tensor tokens = targets(step, BATCH * TOKENS, VOCABULARY).view({BATCH, TOKENS});
    return models::next_token_loss(model.forward(tokens),
                                   targets(step + 1, BATCH * TOKENS, VOCABULARY).view({BATCH, TOKENS}));
  }
};

using Values = std::vector<at::Tensor>;

Values values_of(const torch::nn::Module& net) {
  Values values;
  for (const auto& item : net.named_parameters()) values.push_back(item.value().detach().clone());
  for (const auto& item : net.named_buffers()) values.push_back(item.value().detach().clone());
  return values;
}

template <typename Task, typename Optimizer, typename Options> Values train_replicas(const Options& options) {
  torch::manual_seed(1);
  auto net = Task::make();
  DistributedDataParallel model(net);
  Optimizer optimizer(model.named_parameters().pairs(), options);
  for (int step = 0; step < STEPS; ++step) {
    optimizer.zero_grad();
    Task::loss(model, step).backward();
    clip_grad_norm_(model.parameters(), 0.5);
    optimizer.step();
  }
  return values_of(*net);
}

template <typename Task, typename Optimizer, typename Options>
Values train_shards(int stage, const Options& options) {
  torch::manual_seed(1);
  auto net = Task::make();
  ShardedDataParallel model(net, {.stage = stage, .bucket_cap_mb = BUCKET_MB});
  auto optimizer = model.template optimizer<Optimizer>(options);
  for (int step = 0; step < STEPS; ++step) {
    Task::loss(model, step).backward();
    model.clip_grad_norm_(0.5);
    optimizer.step();
  }
  return values_of(*net);
}

template <typename Task, typename Optimizer, typename Options>
void expect_bits_of_replicas(const Options& options) {
  const Values expected = train_replicas<Task, Optimizer>(options);
  for (const int stage : {1, 2}) {
    const Values found = train_shards<Task, Optimizer>(stage, options);
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_TRUE(found[i].equal(expected[i])) << "stage " << stage << ": " << i;
  }
}

template <typename Task> void expect_bits_of_replicas() {
  torch::set_num_threads(1);
  expect_bits_of_replicas<Task, optim::SGD>(optim::SGDOptions(0.1).momentum(0.9));
  expect_bits_of_replicas<Task, optim::AdamW>(optim::AdamWOptions(1e-2));
  expect_bits_of_replicas<Task, optim::LAMB>(optim::LAMBOptions(1e-2));
}

RANKS_TEST(ShardedModels, AnMlpHasTheBitsOfReplicas, Ranks(1, 2, 3, 4), Backends("shm", "tcp")) {
  expect_bits_of_replicas<Mlp>();
}
RANKS_TEST(ShardedModels, ResNet18HasTheBitsOfReplicas, Ranks(1, 2, 3, 4)) {
  expect_bits_of_replicas<ResNet18>();
}
RANKS_TEST(ShardedModels, Gpt2HasTheBitsOfReplicas, Ranks(1, 2, 3, 4), Backends("shm", "tcp")) {
  expect_bits_of_replicas<Gpt2>();
}

// State that was loaded on rank 0 alone: the ranks would step with averages of differently scaled gradients.
RANKS_TEST(ShardedModels, ScalesThatDifferAreAMismatchWithBoth, Ranks(2, 3), Backends("shm", "tcp")) {
  torch::nn::Linear net(3, 2);
  ShardedDataParallel model(net);
  auto optimizer = model.optimizer<optim::SGD>(optim::SGDOptions(0.1));
  const at::Tensor before = net->weight.detach().clone();
  GradScaler scaler({.init_scale = 65536});
  if (rank() == 0) scaler.load_state_dict(GradScaler({.init_scale = 1024}).state_dict());
  scaler.scale(model.forward(torch::ones({2, 3})).sum()).backward();
  EXPECT_THAT([&] { scaler.step(optimizer); },
              ::testing::ThrowsMessage<Mismatch>(::testing::AllOf(
                  ::testing::HasSubstr("with the scale 1024"), ::testing::HasSubstr("with the scale 65536"),
                  ::testing::HasSubstr("alike on all ranks"))));
  EXPECT_TRUE(net->weight.equal(before));
}

}  // namespace
}  // namespace sharded_models
}  // namespace lockstep

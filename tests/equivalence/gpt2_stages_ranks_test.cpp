// GPT-2 in stage 3 of ShardedDataParallel, where every parameter is gathered while it is used: the bits of
// the other stages and of replicas.
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <optional>
#include <vector>

#include "lockstep/autograd/activation_checkpoint.h"
#include "lockstep/job/job.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/clip_grad.h"
#include "lockstep/optim/lamb.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/parallel/ddp/distributed_data_parallel.h"
#include "lockstep/parallel/zero/sharded_data_parallel.h"
#include "testing/ranks.h"

namespace lockstep {
namespace gpt2_stages {
namespace {

constexpr int STEPS = 3;
constexpr double SMALL = 0.004;  // MiB, of buckets and of units

struct Training {
  int passes = 1;  // backwards of a step
  at::ScalarType type = at::kFloat;
  bool recomputes = false;  // blocks, in backward
};

// Of 13 parameters a block, with the output layer tied to the first one. Rank 0's values count.
models::GPT2 make_net(const Training& training) {
  torch::manual_seed(static_cast<std::uint64_t>(get_rank()));
  models::GPT2 net(models::GPT2Config{.vocab_size = 40,
                                      .n_positions = 8,
                                      .n_embd = 32,
                                      .n_layer = 2,
                                      .n_head = 2,
                                      .embd_pdrop = 0,
                                      .attn_pdrop = 0,
                                      .resid_pdrop = 0});
  net->to(training.type);
  if (training.recomputes) {
    net->transformer->run_block = [](models::GPT2Block block, const at::Tensor& x) {
      return checkpoint(block, x);
    };
  }
  return net;
}

using Values = std::vector<at::Tensor>;

template <typename Model> void run_passes(Model& model, int step, const Training& training, Values& values) {
  for (int pass = 0; pass < training.passes; ++pass) {
    const at::Tensor tokens = (at::arange(25, at::kLong) * (7 + 10 * step + pass + get_rank())).remainder(40);
    const at::Tensor logits = model.forward(tokens.narrow(0, 0, 24).view({4, 6})).to(at::kFloat);
    const at::Tensor loss = models::next_token_loss(logits, tokens.narrow(0, 1, 24).view({4, 6}));
    values.push_back(loss.detach().clone());
    loss.backward();
  }
}

// Losses, norms, then parameters.
template <typename Optimizer, typename Options>
Values train(ShardedDataParallelOptions sharded, const Options& options, const Training& training = {}) {
  sharded.bucket_cap_mb = sharded.unit_mb = SMALL;
  sharded.master_weights = training.type != at::kFloat;
  ShardedDataParallel model(make_net(training), sharded);
  auto optimizer = model.template optimizer<Optimizer>(options);
  Values values;
  for (int step = 0; step < STEPS; ++step) {
    run_passes(model, step, training, values);
    values.push_back(at::scalar_tensor(model.clip_grad_norm_(0.5), at::kDouble));
    optimizer.step();
  }
  for (const auto& item : model.state_dict()) values.push_back(item.value().detach().clone());
  return values;
}

template <typename Optimizer, typename Options> Values train_replicas(const Options& options) {
  models::GPT2 net = make_net({});
  DistributedDataParallel model(net);
  Optimizer optimizer(model.named_parameters().pairs(), options);
  Values values;
  for (int step = 0; step < STEPS; ++step) {
    optimizer.zero_grad();
    run_passes(model, step, {}, values);
    values.push_back(at::scalar_tensor(clip_grad_norm_(net->parameters(), 0.5), at::kDouble));
    optimizer.step();
  }
  for (const auto& item : net->named_parameters()) values.push_back(item.value().detach().clone());
  return values;
}

void expect_equal(const Values& a, const Values& b, const char* what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_TRUE(a[i].equal(b[i])) << what << ": " << i << ", off by " << (a[i] - b[i]).abs().max();
}

const ShardedDataParallelOptions GATHERED = {.stage = 3, .param_persistence_threshold = 0};
const optim::SGDOptions MOMENTUM = optim::SGDOptions(0.05).momentum(0.9);
const optim::AdamWOptions ADAM = optim::AdamWOptions(1e-2);
const optim::LAMBOptions LAMB = optim::LAMBOptions(1e-2).max_grad_norm(0.5);

RANKS_TEST(GPT2Stages, GatheredParametersHaveTheBitsOfStage1, Ranks(1, 2, 3, 4), Backends("tcp")) {
  torch::set_num_threads(1);
  expect_equal(train<optim::SGD>(GATHERED, MOMENTUM), train<optim::SGD>({}, MOMENTUM), "SGD");
  const Values expected = train<optim::AdamW>({}, ADAM);
  expect_equal(train<optim::AdamW>(GATHERED, ADAM), expected, "AdamW");
  expect_equal(train<optim::AdamW>(GATHERED, ADAM, {.recomputes = true}), expected, "AdamW, computed again");
  const Training half{.type = at::kBFloat16};
  expect_equal(train<optim::LAMB>(GATHERED, LAMB, half), train<optim::LAMB>({}, LAMB, half), "LAMB, masters");
  const Training twice{.passes = 2};
  expect_equal(train<optim::AdamW>(GATHERED, ADAM, twice), train<optim::AdamW>({.stage = 2}, ADAM, twice),
               "accumulation");
}

RANKS_TEST(GPT2Stages, GatheredParametersHaveTheBitsOfReplicas, Ranks(2, 3, 4), Backends("tcp")) {
  torch::set_num_threads(1);
  expect_equal(train<optim::SGD>(GATHERED, MOMENTUM), train_replicas<optim::SGD>(MOMENTUM), "SGD");
  expect_equal(train<optim::AdamW>(GATHERED, ADAM), train_replicas<optim::AdamW>(ADAM), "AdamW");
  expect_equal(train<optim::LAMB>(GATHERED, LAMB), train_replicas<optim::LAMB>(LAMB), "LAMB");
}

}  // namespace
}  // namespace gpt2_stages
}  // namespace lockstep

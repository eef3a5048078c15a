// GPT-2 in tensor parallel beside models::GPT2 in one process: losses and parameters over 20 steps, and files
// that each reads of the other.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <vector>

#include "lockstep/autograd/activation_checkpoint.h"
#include "lockstep/base/error.h"
#include "lockstep/checkpoint/checkpoint_state.h"
#include "lockstep/checkpoint/full_state_dict.h"
#include "lockstep/checkpoint/load_checkpoint.h"
#include "lockstep/checkpoint/save_checkpoint.h"
#include "lockstep/job/model_parallel.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/models/gpt2_files.h"
#include "lockstep/models/tensor_parallel_gpt2.h"
#include "lockstep/optim/adam.h"
#include "lockstep/parallel/ddp/distributed_data_parallel.h"
#include "lockstep/parallel/tensor_parallel/cross_entropy.h"
#include "lockstep/parallel/tensor_parallel/model_state.h"
#include "testing/ranks.h"
#include "testing/shared_folder.h"
#include "tests/equivalence/gpt2_on_mesh.h"

namespace lockstep {
namespace tensor_parallel_gpt2 {
namespace {

using testing::SharedFolder;
namespace tp = tensor_parallel;

constexpr int STEPS = 20;

// A vocabulary that no number of ranks divides.
models::GPT2Config config(bool tied = true) {
  return {.vocab_size = 41,
          .n_positions = 12,
          .n_embd = 16,
          .n_layer = 2,
          .n_head = 4,
          .embd_pdrop = 0,
          .attn_pdrop = 0,
          .resid_pdrop = 0,
          .tie_word_embeddings = tied};
}

struct Batch {
  explicit Batch(int step) {
    const at::Tensor text = (at::arange(49, at::kLong) * (5 + 3 * (step % 2))).remainder(41);
    tokens = text.narrow(0, 0, 48).view({4, 12});
    targets = text.narrow(0, 1, 48).view({4, 12});
  }
  at::Tensor tokens, targets;
};

template <typename Net, typename Loss>
std::vector<double> train(Net& net, const Loss& loss_of, int first = 0, int steps = STEPS) {
  optim::AdamW optimizer(net->named_parameters().pairs(), optim::AdamWOptions(3e-3));
  std::vector<double> losses;
  for (int step = first; step < first + steps; ++step) {
    const Batch batch(step);
    optimizer.zero_grad();
    const at::Tensor loss = loss_of(batch);
    loss.backward();
    optimizer.step();
    losses.push_back(loss.template item<double>());
  }
  return losses;
}

models::GPT2 plain(at::ScalarType type, bool tied) {
  torch::manual_seed(1);
  models::GPT2 net(config(tied));
  net->to(type);
  return net;
}

models::TensorParallelGPT2 shared_out(const ProcessGroup& group, at::ScalarType type, bool tied,
                                      bool sequence_parallel) {
  torch::manual_seed(1);
  models::TensorParallelGPT2 net(config(tied), group,
                                 models::TensorParallelGPT2Options{.sequence_parallel = sequence_parallel});
  net->to(type);
  return net;
}

void expect_parts(const torch::nn::Module& own, const torch::nn::Module& whole, double tolerance) {
  EXPECT_EQ(own.named_parameters().size(), whole.named_parameters().size());
  gpt2_on_mesh::expect_parts(own, whole, tolerance);
}

void compare(const ProcessGroup& group, at::ScalarType type, double tolerance, bool tied = true,
             bool sequence_parallel = false, bool recomputes = false) {
  models::GPT2 whole = plain(type, tied);
  models::TensorParallelGPT2 own = shared_out(group, type, tied, sequence_parallel);
  expect_parts(*own, *whole, 0);  // the first values, to the bit
  if (recomputes)
    own->transformer->run_block = [](tp::ParallelTransformerLayer block, const at::Tensor& x) {
      return checkpoint(block, x);
    };
  const auto expected =
      train(whole, [&](const Batch& b) { return models::next_token_loss(whole(b.tokens), b.targets); });
  const auto losses = train(own, [&](const Batch& b) { return own->loss(b.tokens, b.targets); });
  for (int i = 0; i < STEPS; ++i)
    EXPECT_NEAR(losses[static_cast<std::size_t>(i)], expected[static_cast<std::size_t>(i)],
                tolerance * expected[0])
        << "step " << i;
  EXPECT_LT(expected.back(), expected.front());
  expect_parts(*own, *whole, tolerance * 10);
}

RANKS_TEST(TensorParallelGPT2, TrainsAsOneProcess, Ranks(1, 2, 4)) {
  torch::set_num_threads(1);
  compare(world(), at::kDouble, 1e-10);
  compare(world(), at::kFloat, 1e-4);
}

RANKS_TEST(TensorParallelGPT2, TrainsInPartsOfTheSequence, Ranks(2, 4), Backends("tcp")) {
  torch::set_num_threads(1);
  compare(world(), at::kDouble, 1e-10, /*tied=*/true, /*sequence_parallel=*/true);
  compare(world(), at::kDouble, 1e-10, true, true, /*recomputes=*/true);
}

RANKS_TEST(TensorParallelGPT2, OutputLayerOfItsOwn, Ranks(1, 2)) {
  torch::set_num_threads(1);
  compare(world(), at::kDouble, 1e-10, /*tied=*/false, /*sequence_parallel=*/true, /*recomputes=*/true);
}

// Two copies, of two ranks each: DistributedDataParallel averages each piece with the same piece of the other
// copy, which had the other half of the batch.
RANKS_TEST(TensorParallelGPT2, AveragesWithOtherCopies, Ranks(4), Backends("shm", "tcp")) {
  torch::set_num_threads(1);
  const ModelParallel parallel = init_model_parallel({.tensor = 2});
  const ProcessGroup& group = parallel.get_tensor_model_parallel_group();
  models::GPT2 whole = plain(at::kDouble, true);
  models::TensorParallelGPT2 own = shared_out(group, at::kDouble, true, false);
  DistributedDataParallel ddp(own, {.process_group = parallel.get_data_parallel_group()});
  train(whole, [&](const Batch& b) { return models::next_token_loss(whole(b.tokens), b.targets); });
  train(own, [&](const Batch& b) {
    const auto half = [&](const at::Tensor& of) {
      return of.narrow(0, 2 * parallel.get_data_parallel_rank(), 2);
    };
    return tp::vocab_parallel_cross_entropy(ddp->forward(half(b.tokens)), half(b.targets), group,
                                            {.vocab_size = 41});
  });
  expect_parts(*own, *whole, 1e-9);
}

// A checkpoint of either model is loaded by the other, and Hugging Face's file of the whole is one file.
RANKS_TEST(TensorParallelGPT2, SharesCheckpointsWithThePlainModel, Ranks(1, 2, 4)) {
  torch::set_num_threads(1);
  const SharedFolder folder(world());
  models::GPT2 whole = plain(at::kFloat, true);
  models::TensorParallelGPT2 own = shared_out(world(), at::kFloat, true, false);
  train(
      own, [&](const Batch& b) { return own->loss(b.tokens, b.targets); }, 0, 2);

  tp::ModelState own_state(*own);
  CheckpointState of_parts, of_whole;
  of_parts.add("model", own_state);
  of_whole.add("model", whole);
  save_checkpoint(folder / "parts", of_parts, {.durable = false});
  load_checkpoint(folder / "parts", of_whole);
  expect_parts(*own, *whole, 0);

  write_full_state_dict(folder / "model.safetensors", own_state);
  comm::barrier(world());
  models::GPT2 read = plain(at::kFloat, true);
  models::load_gpt2(*read, folder / "model.safetensors");
  expect_parts(*own, *read, 0);

  train(
      whole, [&](const Batch& b) { return models::next_token_loss(whole(b.tokens), b.targets); }, 2, 1);
  save_checkpoint(folder / "whole", of_whole, {.durable = false});
  load_checkpoint(folder / "whole", of_parts);
  expect_parts(*own, *whole, 0);
}

}  // namespace
}  // namespace tensor_parallel_gpt2
}  // namespace lockstep

// A small GPT-2 that trains on a mesh of tensor, pipeline, context and data parallelism, and the same in one
// process (models::GPT2), for tests that compare the two.
//
//   models::GPT2 whole = whole_net({});
//   OnMesh on_mesh({.tensor = 2, .pipeline = 2}, {});
//   EXPECT_THAT(on_mesh.train(), near(train_whole(whole, {})));     // losses and norms of each step
//   expect_parts(*on_mesh.net, *whole, 1e-9);
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <map>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/str.h"
#include "lockstep/comm/collectives/all_reduce.h"
#include "lockstep/job/model_parallel.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/models/pipeline_gpt2.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/clip_grad.h"
#include "lockstep/parallel/model_parallel/gradient_norm.h"
#include "lockstep/parallel/tensor_parallel/model_state.h"
#include "lockstep/parallel/zero/sharded_data_parallel.h"
#include "testing/tensor_near.h"

namespace lockstep::gpt2_on_mesh {

namespace tp = tensor_parallel;

inline constexpr std::int64_t VOCABULARY = 41, LENGTH = 12, ROWS = 8;  // of the batch of all copies
inline constexpr double CLIP = 0.5;
inline constexpr std::int64_t IGNORED = -100;

struct Dropout {
  double hidden = 0, attention = 0;  // probabilities
};

inline models::GPT2Config config(bool tied = true, Dropout dropout = {}) {
  return {.vocab_size = VOCABULARY,
          .n_positions = LENGTH,
          .n_embd = 16,
          .n_layer = 4,
          .n_head = 8,  // for up to as many tensor-parallel ranks
          .embd_pdrop = dropout.hidden,
          .attn_pdrop = dropout.attention,
          .resid_pdrop = dropout.hidden,
          .tie_word_embeddings = tied};
}

struct TextBatch {
  explicit TextBatch(int step, bool ignores = false) {
    const at::Tensor text =
        (at::arange(ROWS * LENGTH + 1, at::kLong) * (5 + 3 * (step % 2))).remainder(VOCABULARY);
    tokens = text.narrow(0, 0, ROWS * LENGTH).view({ROWS, LENGTH});
    targets = text.narrow(0, 1, ROWS * LENGTH).view({ROWS, LENGTH}).clone();
    // Another number in each row, none in the first.
    if (ignores)
      targets.masked_fill_(at::arange(LENGTH).unsqueeze(0) < at::arange(ROWS).unsqueeze(1), IGNORED);
  }
  at::Tensor tokens, targets;
};

struct Training {
  PipelineScheduleKind schedule = PipelineScheduleKind::ONE_F_ONE_B;
  at::ScalarType type = at::kDouble;
  int steps = 20;
  int micro_batches = 2;
  int passes = 1;  // batches of a step
  bool sequence_parallel = false;
  bool tied = true;
  bool counts_targets = false;
  RecomputeMode recompute = RecomputeMode::NEVER;
  Dropout dropout = {};
};

inline std::vector<double> train_whole(models::GPT2& net, const Training& training) {
  optim::AdamW optimizer(net->named_parameters().pairs(), optim::AdamWOptions(3e-3));
  std::vector<double> values;
  for (int step = 0; step < training.steps; ++step) {
    optimizer.zero_grad();
    for (int pass = 0; pass < training.passes; ++pass) {
      const TextBatch batch(step + pass, training.counts_targets);
      const at::Tensor loss = models::next_token_loss(net->forward(batch.tokens), batch.targets);
      loss.backward();
      values.push_back(loss.item<double>());
    }
    values.push_back(clip_grad_norm_(net->parameters(), CLIP));
    optimizer.step();
  }
  return values;
}

inline models::GPT2 whole_net(const Training& training, std::uint64_t seed = 1) {
  torch::manual_seed(seed);
  models::GPT2 net(config(training.tied, training.dropout));
  net->to(training.type);
  return net;
}

// A model on a mesh, with all that trains it.
struct OnMesh {
  OnMesh(const ModelParallelSizes& sizes, const Training& with, std::uint64_t seed = 1)
      : training(with),
        mesh(init_model_parallel(sizes)),
        net(make_net(seed)),
        model(net, sharded()),
        optimizer(model.optimizer<optim::AdamW>(optim::AdamWOptions(3e-3))),
        pipeline(models::stages_of(model, net->chunks()), net->loss_function(loss_options()), options(),
                 mesh.get_pipeline_model_parallel_group()),
        norm(*net, mesh) {
    if (training.tied) pipeline.tie("wte", net->tied_weight());
  }
  OnMesh(const OnMesh&) = delete;
  OnMesh& operator=(const OnMesh&) = delete;
  ~OnMesh() = default;

  const ProcessGroup& copies() const { return mesh.get_data_parallel_group(true); }

  models::PipelineGPT2 make_net(std::uint64_t seed) const {
    torch::manual_seed(seed);
    models::PipelineGPT2 made(config(training.tied, training.dropout), mesh,
                              models::PipelineGPT2Options{.schedule = training.schedule,
                                                          .sequence_parallel = training.sequence_parallel});
    made->to(training.type);
    return made;
  }
  ShardedDataParallelOptions sharded() const {
    return {.process_group = copies(), .master_weights = training.type == at::kBFloat16};
  }
  models::GPT2LossOptions loss_options() const {
    return {.reduction = training.counts_targets ? at::Reduction::Sum : at::Reduction::Mean};
  }
  PipelineOptions options() const {
    PipelineOptions of{.schedule = training.schedule,
                       .micro_batches = training.micro_batches,
                       .recompute = training.recompute};
    if (training.counts_targets) {
      of.reduction = LossReduction::SUM;
      of.count = net->target_counter();
      of.replicas = copies();
    }
    return of;
  }

  // The mean of all copies' losses.
  double pass(const TextBatch& batch, double grad_scale = 1) {
    const std::int64_t rows = ROWS / mesh.get_data_parallel_world_size();
    const std::int64_t first = rows * mesh.get_data_parallel_rank();
    double loss =
        pipeline.step(batch.tokens.narrow(0, first, rows), batch.targets.narrow(0, first, rows), grad_scale)
            .loss;
    comm::all_reduce(copies(), std::span(&loss, 1), ReduceOp::AVG).wait();
    return loss;
  }

  std::vector<double> train(int first = 0) {
    std::vector<double> values;
    for (int step = first; step < first + training.steps; ++step) {
      for (int i = 0; i < training.passes; ++i)
        values.push_back(pass(TextBatch(step + i, training.counts_targets)));
      values.push_back(norm.clip_grad_norm_(model, CLIP));
      optimizer.step();
    }
    return values;
  }

  const Training training;
  const ModelParallel mesh;
  models::PipelineGPT2 net;
  ShardedDataParallel<models::PipelineGPT2Impl> model;
  ShardedOptimizer<optim::AdamW> optimizer;
  Pipeline pipeline;
  GradientNorm norm;
};

inline std::string words_of(const ModelParallelSizes& sizes) {
  return lockstep::str("tensor ", sizes.tensor, ", pipeline ", sizes.pipeline, " times ",
                       sizes.virtual_pipeline, ", context ", sizes.context);
}

// This rank's part of the whole model's parameters.
inline void expect_parts(const torch::nn::Module& own, const torch::nn::Module& whole, double tolerance) {
  std::map<std::string, tp::Partition> partitions;
  for (const tp::ParameterPiece& piece : tp::named_pieces(own)) partitions[piece.name] = piece.partition;
  const auto parameters = whole.named_parameters();
  EXPECT_GT(own.named_parameters().size(), 0U);
  for (const auto& entry : own.named_parameters()) {
    const at::Tensor& of = parameters[entry.key()];
    const auto part = partitions.find(entry.key());
    testing::expect_near(entry.value(), part == partitions.end() ? of : tp::piece_of(of, part->second),
                         tolerance, entry.key().c_str());
  }
}

}  // namespace lockstep::gpt2_on_mesh

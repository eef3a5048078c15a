// Sharded training on this rank's GPU, beside the training of one process on the CPU with libtorch's
// optimisers and the whole batches (training.h).
//
//   expect_same_training<optim::SGD, torch::optim::SGD>(world(), options, options, {.stage = 2});
#pragma once

#include <optional>
#include <vector>

#include "lockstep/checkpoint/checkpoint_state.h"
#include "lockstep/optim/adam.h"
#include "lockstep/parallel/zero/sharded_data_parallel.h"
#include "tests/cuda/training.h"

namespace lockstep::cuda_tests::sharded {

inline constexpr int STEPS = 8;
inline constexpr double EXACT = 1e-11;
inline constexpr double MAX_NORM = 0.3;  // below that of every step

struct Way {
  int stage = 1;
  int backwards = 1;  // of a step
  bool clips = false;
  std::optional<OffloadOptions> offload = {};
};

// In stage 3 biases stay, and of three units there is room for one of the larger two, or one of these and the
// small one.
inline ShardedDataParallelOptions options_of(int stage, const ProcessGroup& group,
                                             const std::optional<OffloadOptions>& offload = {}) {
  return {.stage = stage,
          .bucket_cap_mb = 0.001,
          .process_group = group,
          .offload = offload,
          .unit_mb = 0.001,
          .param_persistence_threshold = 20,
          .max_live_parameters = 1200};
}

inline at::Tensor loss_of(const at::Tensor& output, const Batch& batch, const Way& way) {
  return torch::cross_entropy_loss(output, batch.target) / way.backwards;
}

template <typename Optimizer, typename Options>
Net train_alone(const Options& options, const Way& way, std::vector<double>& norms) {
  Net net = make_net(0);
  Optimizer optimizer(net->parameters(), options);
  for (int step = 0; step < STEPS; ++step) {
    optimizer.zero_grad();
    for (int i = 0; i < way.backwards; ++i) {
      const Batch batch = Batch::make(step * way.backwards + i);
      loss_of(net->forward(batch.data, step % 3 != 1), batch, way).backward();
    }
    if (way.clips) norms.push_back(torch::nn::utils::clip_grad_norm_(net->parameters(), MAX_NORM));
    optimizer.step();
  }
  return net;
}

// Trains on this rank's GPU and compares with one process.
template <typename Optimizer, typename Alone, typename Options, typename AloneOptions>
void expect_same_training(const ProcessGroup& group, const Options& options,
                          const AloneOptions& alone_options, const Way& way) {
  std::vector<double> norms;
  const Net alone = train_alone<Alone>(alone_options, way, norms);
  Net net = make_net(/*seed=*/group.rank());  // another model on each rank, until it is wrapped
  net->to(gpu_of(group));
  ShardedDataParallel model(net, options_of(way.stage, group, way.offload));
  auto optimizer = model.template optimizer<Optimizer>(options);
  for (int step = 0; step < STEPS; ++step) {
    for (int i = 0; i < way.backwards; ++i) {
      const Batch batch = Batch::make(step * way.backwards + i).share(group);
      loss_of(model.forward(batch.data, step % 3 != 1), batch, way).backward();
    }
    if (way.clips) {
      const double norm = norms[static_cast<std::size_t>(step)];
      EXPECT_NEAR(model.clip_grad_norm_(MAX_NORM), norm, 1e-9 * norm);
      EXPECT_GT(norm, MAX_NORM);
    }
    optimizer.step();
  }
  for (const at::Tensor& shard : optimizer.param_groups()[0].params())
    EXPECT_EQ(shard.is_cpu(), way.offload.has_value());
  expect_close(net->named_parameters(), alone->named_parameters(), EXACT);
  EXPECT_TRUE(net->out->weight.is_cuda());
}

// Its state can go into a checkpoint, and come from one.
struct ShardedRun {
  ShardedRun(const ProcessGroup& ranks, int stage, const at::Device& place, int seed,
             const std::optional<OffloadOptions>& offload = {})
      : group(ranks), device(place), net(make_net(seed)), model(moved(), options_of(stage, ranks, offload)) {
    state.add("model", model).add("optimizer", optimizer);
  }
  Net moved() {
    net->to(device);
    return net;
  }
  void train(int begin, int end) {
    for (int step = begin; step < end; ++step) {
      const Batch batch = Batch::make(step).share(group);
      torch::cross_entropy_loss(model.forward(batch.data.to(device)), batch.target.to(device)).backward();
      optimizer.step();
    }
  }

  ProcessGroup group;
  at::Device device;
  Net net;
  ShardedDataParallel<NetImpl> model;
  ShardedOptimizer<optim::AdamW> optimizer = model.optimizer<optim::AdamW>(optim::AdamWOptions(0.01));
  CheckpointState state;
};

}  // namespace lockstep::cuda_tests::sharded

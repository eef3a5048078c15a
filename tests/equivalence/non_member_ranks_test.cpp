// A process outside of a group: every part that trains, saves or measures with a group refuses it at once, by
// the name of the part that the program used. train/group_places_ranks_test.cpp has the parts of DDP.
#include <gmock/gmock.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <csignal>
#include <memory>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/checkpoint_state.h"
#include "lockstep/checkpoint/load_checkpoint.h"
#include "lockstep/checkpoint/save_checkpoint.h"
#include "lockstep/compat/apex/amp.h"
#include "lockstep/compat/apex/parallel.h"
#include "lockstep/compat/deepspeed/engine.h"
#include "lockstep/data/distributed_sampler.h"
#include "lockstep/job/groups.h"
#include "lockstep/job/join.h"
#include "lockstep/job/stop_signals.h"
#include "lockstep/models/tensor_parallel_gpt2.h"
#include "lockstep/optim/norm_reducer.h"
#include "lockstep/parallel/context_parallel/ring_attention.h"
#include "lockstep/parallel/pipeline/balance.h"
#include "lockstep/parallel/pipeline/pipeline.h"
#include "lockstep/parallel/replicas/broadcast_optimizer_state.h"
#include "lockstep/parallel/tensor_parallel/cross_entropy.h"
#include "lockstep/parallel/tensor_parallel/mappings.h"
#include "lockstep/parallel/tensor_parallel/parallel_transformer_layer.h"
#include "lockstep/parallel/tensor_parallel/random.h"
#include "lockstep/parallel/tensor_parallel/vocab_parallel_embedding.h"
#include "lockstep/parallel/zero/sharded_data_parallel.h"
#include "lockstep/parallel/zero/zero_redundancy_optimizer.h"
#include "lockstep/train/best_checkpoints.h"
#include "lockstep/train/gather_for_metrics.h"
#include "testing/ranks.h"

namespace lockstep {
namespace non_member {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

template <typename Body> void expect_refused(const std::string& who, Body body) {
  SCOPED_TRACE(who);
  EXPECT_THAT(body, ThrowsMessage<InvalidArgument>(
                        AllOf(HasSubstr(who + ": this process is not in the group, whose ranks are 0:"),
                              HasSubstr("group.is_member()"))));
}

torch::nn::Sequential two_layers() {
  return torch::nn::Sequential(torch::nn::Linear(2, 2), torch::nn::Linear(2, 1));
}

class OfOneGroup : public Joinable {
 public:
  explicit OfOneGroup(ProcessGroup group) : group_(std::move(group)) {}
  std::shared_ptr<JoinHook> join_hook(const JoinOptions&) override { return std::make_shared<JoinHook>(); }
  const ProcessGroup& join_process_group() const override { return group_; }

 private:
  ProcessGroup group_;
};

RANKS_TEST(NonMember, IsRefusedByShardsAndWrappers, Ranks(2, 3)) {
  const ProcessGroup group = new_group({0});
  if (rank() == 0) return;
  torch::nn::Linear net(2, 1);
  expect_refused("ShardedDataParallel", [&] { ShardedDataParallel model(net, {.process_group = group}); });
  expect_refused("ZeroRedundancyOptimizer", [&] {
    ZeroRedundancyOptimizer<torch::optim::SGD>(net->parameters(), torch::optim::SGDOptions(0.1),
                                               {.process_group = group});
  });
  expect_refused("NormReducer", [&] { NormReducer over(group); });
  torch::optim::SGD sgd(net->parameters(), 0.1);
  expect_refused("broadcast_optimizer_state", [&] { broadcast_optimizer_state(sgd, 0, group); });
  OfOneGroup joinable(group);
  expect_refused("Join", [&] { Join({&joinable}); });
  namespace apex = compat::apex;
  expect_refused("apex amp::initialize",
                 [&] { apex::amp::initialize(net, sgd, "O1", {.process_group = group}); });
  expect_refused("apex Reducer", [&] { apex::parallel::Reducer(net->parameters(), group); });
  namespace deepspeed = compat::deepspeed;
  const deepspeed::Config config = deepspeed::parse_config_text(
      R"({"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "Adam", "params": {"lr": 0.1}}})");
  expect_refused("initialize()", [&] { deepspeed::initialize(net, config, {.process_group = group}); });
}

RANKS_TEST(NonMember, IsRefusedByModelParallelism, Ranks(2, 3)) {
  const ProcessGroup group = new_group({0});
  if (rank() == 0) return;
  namespace tp = tensor_parallel;
  const at::Tensor x = at::ones({1, 2, 4, 2});
  expect_refused("Pipeline", [&] {
    Pipeline(
        {PipelineStage(two_layers())}, [](const at::Tensor& y, const at::Tensor&) { return y.sum(); }, {},
        group);
  });
  expect_refused("balance_by_time", [&] { balance_by_time(2, two_layers(), at::ones({1, 2}), group); });
  const PipelineShape shape{.stages = 2};
  expect_refused("balance_by_time", [&] { balance_by_time(shape, two_layers(), at::ones({1, 2}), group); });
  expect_refused("balance_by_size", [&] { balance_by_size(2, two_layers(), at::ones({1, 2}), 1, 2, group); });
  expect_refused("ring_attention", [&] { context_parallel::ring_attention(x, x, x, group); });
  expect_refused("sequence_part", [&] { context_parallel::sequence_part(x, 2, group); });
  expect_refused("sequence_whole", [&] { context_parallel::sequence_whole(x, 2, group); });
  expect_refused("model_parallel_manual_seed", [&] { tp::model_parallel_manual_seed(1, group); });
  expect_refused("ForkedRandom", [&] { tp::ForkedRandom fork(group); });
  expect_refused("ColumnParallelLinear", [&] { tp::ColumnParallelLinear(2, 2, group); });
  expect_refused("RowParallelLinear", [&] { tp::RowParallelLinear(2, 2, group); });
  expect_refused("VocabParallelEmbedding", [&] { tp::VocabParallelEmbedding(4, 2, group); });
  const tp::TransformerConfig config{.hidden_size = 4, .num_attention_heads = 2};
  expect_refused("ParallelSelfAttention", [&] { tp::ParallelSelfAttention(config, group); });
  expect_refused("ColumnParallelLinear", [&] { tp::ParallelMLP(config, group); });
  expect_refused("ParallelSelfAttention", [&] { tp::ParallelTransformerLayer(config, group); });
  expect_refused("vocab_parallel_cross_entropy", [&] {
    tp::vocab_parallel_cross_entropy(at::ones({1, 2}), at::zeros({1}, at::kLong), group);
  });
  expect_refused("copy_to_tensor_model_parallel_region",
                 [&] { tp::copy_to_tensor_model_parallel_region(x, group); });
  expect_refused("gather_from_sequence_parallel_region",
                 [&] { tp::gather_from_sequence_parallel_region(x, group); });
  expect_refused("VocabParallelEmbedding", [&] {
    models::TensorParallelGPT2(
        models::GPT2Config{.vocab_size = 4, .n_positions = 4, .n_embd = 4, .n_layer = 1, .n_head = 2}, group);
  });
}

RANKS_TEST(NonMember, IsRefusedByCheckpointsMetricsAndSignals, Ranks(2, 3)) {
  const ProcessGroup group = new_group({0});
  if (rank() == 0) return;
  torch::nn::Linear net(2, 1);
  CheckpointState state;
  state.add("net", *net);
  expect_refused("save_checkpoint", [&] { save_checkpoint("/nowhere", state, {.process_group = group}); });
  expect_refused("save_checkpoint_async",
                 [&] { save_checkpoint_async("/nowhere", state, {.process_group = group}); });
  expect_refused("load_checkpoint", [&] { load_checkpoint("/nowhere", state, {.process_group = group}); });
  expect_refused("BestCheckpoints::add", [&] { BestCheckpoints(1, MetricMode::MIN, group).add(1, 1.0); });
  const DistributedSampler sampler(2, {.num_replicas = 1, .rank = 0});
  expect_refused("gather_for_metrics", [&] { gather_for_metrics(at::ones({2}), sampler, group); });
  StopSignals stop({SIGUSR1}, {.group = group});
  expect_refused("StopSignals", [&] { stop.requested_on_any_rank(); });
}

}  // namespace
}  // namespace non_member
}  // namespace lockstep

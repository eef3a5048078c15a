// GPT-2 on meshes of tensor, pipeline, context and data parallelism beside models::GPT2 in one process.
#include "tests/equivalence/gpt2_on_mesh.h"

#include "lockstep/amp/grad_scaler.h"
#include "testing/ranks.h"

namespace lockstep {
namespace gpt2_3d {
namespace {

using namespace gpt2_on_mesh;  // NOLINT(google-build-using-namespace): the model under test

// Losses and norms of gradients within `tolerance`, parameters too. In float32 parameters get ten times that:
// a mesh of one process, which only adds micro-batches up, ends .0003 away from the whole batches.
void compare(const ModelParallelSizes& sizes, const Training& training, double tolerance) {
  SCOPED_TRACE(words_of(sizes));
  models::GPT2 whole = whole_net(training);
  OnMesh on_mesh(sizes, training);
  expect_parts(*on_mesh.net, *whole, 0);  // the first values, to the bit
  const std::vector<double> expected = train_whole(whole, training), values = on_mesh.train();
  ASSERT_EQ(values.size(), expected.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_NEAR(values[i], expected[i], tolerance) << "value " << i;
  expect_parts(*on_mesh.net, *whole, training.type == at::kDouble ? tolerance : tolerance * 10);
}

// All sizes of 1 and 2 that fit.
std::vector<ModelParallelSizes> meshes_of(int ranks) {
  std::vector<ModelParallelSizes> meshes;
  for (const int t : {1, 2})
    for (const int p : {1, 2})
      for (const int c : {1, 2})
        if (const int rest = ranks / (t * p * c); rest * t * p * c == ranks && rest <= 2)
          meshes.push_back({.tensor = t, .pipeline = p, .context = c});
  return meshes;
}

RANKS_TEST(GPT2On3D, EveryMeshTrainsAsOneProcess, Ranks(1, 2, 4)) {
  torch::set_num_threads(1);
  for (const ModelParallelSizes& sizes : meshes_of(size())) compare(sizes, {}, 1e-10);
}

RANKS_TEST(GPT2On3D, EveryMeshOfEightTrainsAsOneProcess, Ranks(8), Backends("shm")) {
  torch::set_num_threads(1);
  for (const ModelParallelSizes& sizes : meshes_of(size())) compare(sizes, {}, 1e-10);
  compare({.tensor = 2, .pipeline = 2}, {.micro_batches = 3, .sequence_parallel = true}, 1e-10);
  compare({.tensor = 2, .pipeline = 2, .context = 2}, {.sequence_parallel = true, .counts_targets = true},
          1e-10);
}

RANKS_TEST(GPT2On3D, EveryMeshTrainsInFloat32, Ranks(1, 2, 4, 8), Backends("shm")) {
  torch::set_num_threads(1);
  for (const ModelParallelSizes& sizes : meshes_of(size())) compare(sizes, {.type = at::kFloat}, 1e-4);
}

// Copies that share no memory exchange their gradients and parameters.
RANKS_TEST(GPT2On3D, TrainsOverTcp, Ranks(4), Backends("tcp")) {
  torch::set_num_threads(1);
  compare({.tensor = 2}, {}, 1e-10);
  compare({.pipeline = 2}, {}, 1e-10);
  compare({.context = 2}, {}, 1e-10);
}

RANKS_TEST(GPT2On3D, EverySchedule, Ranks(2, 4)) {
  torch::set_num_threads(1);
  const int tensor = size() / 2;
  const auto with = [&](PipelineScheduleKind kind, int chunks,
                        RecomputeMode recompute = RecomputeMode::NEVER) {
    compare(
        {.tensor = tensor, .pipeline = 2, .virtual_pipeline = chunks},
        {.schedule = kind, .steps = 4, .micro_batches = 4, .sequence_parallel = true, .recompute = recompute},
        1e-10);
  };
  with(PipelineScheduleKind::GPIPE, 1, RecomputeMode::ALWAYS);
  with(PipelineScheduleKind::ONE_F_ONE_B, 1);
  with(PipelineScheduleKind::ONE_F_ONE_B, 2);
  with(PipelineScheduleKind::ZB_H1, 1);
  with(PipelineScheduleKind::ZB_V, 2);
}

// What all tensor-parallel ranks drop alike, they drop as one process does.
RANKS_TEST(GPT2On3D, DropsWhatOneProcessDrops, Ranks(1, 2, 4)) {
  torch::set_num_threads(1);
  for (const auto recompute : {RecomputeMode::NEVER, RecomputeMode::ALWAYS}) {
    const Training training{.micro_batches = 1, .recompute = recompute, .dropout = {.hidden = 0.2}};
    models::GPT2 whole = whole_net(training);
    OnMesh on_mesh({.tensor = size()}, training);
    torch::manual_seed(5);
    const std::vector<double> expected = train_whole(whole, training);
    torch::manual_seed(5);
    const std::vector<double> values = on_mesh.train();
    ASSERT_EQ(values.size(), expected.size());
    for (std::size_t i = 0; i < values.size(); ++i)
      EXPECT_NEAR(values[i], expected[i], 1e-10 * expected[0]) << "value " << i;
    expect_parts(*on_mesh.net, *whole, 1e-9);
  }
}

// Every rank has masks of its own in its heads and its part of the sequence, and its stage's numbers. They
// are drawn again when a forward is computed again: the bits stay.
RANKS_TEST(GPT2On3D, DropsTheSameWhenItComputesAgain, Ranks(4)) {
  torch::set_num_threads(1);
  for (const bool sequence_parallel : {false, true}) {
    const auto values_of = [&](RecomputeMode recompute, int seed) {
      OnMesh on_mesh({.tensor = 2, .pipeline = 2}, {.steps = 3,
                                                    .sequence_parallel = sequence_parallel,
                                                    .recompute = recompute,
                                                    .dropout = {.hidden = 0.2, .attention = 0.2}});
      torch::manual_seed(static_cast<std::uint64_t>(seed + on_mesh.mesh.get_pipeline_model_parallel_rank()));
      return on_mesh.train();
    };
    const std::vector<double> kept = values_of(RecomputeMode::NEVER, 5);
    EXPECT_EQ(values_of(RecomputeMode::EXCEPT_LAST, 5), kept);
    EXPECT_EQ(values_of(RecomputeMode::ALWAYS, 5), kept);
    EXPECT_NE(values_of(RecomputeMode::NEVER, 7), kept);
  }
}

RANKS_TEST(GPT2On3D, AccumulatesOverBatches, Ranks(4)) {
  torch::set_num_threads(1);
  compare({.pipeline = 2}, {.steps = 4, .passes = 3}, 1e-10);
  compare({.tensor = 2, .pipeline = 2}, {.steps = 4, .passes = 3, .tied = false}, 1e-10);
}

// The mean is over all targets that count, though each micro-batch and each copy has another number of them.
RANKS_TEST(GPT2On3D, CountsTargets, Ranks(1, 2, 4)) {
  torch::set_num_threads(1);
  for (const ModelParallelSizes& sizes : meshes_of(size()))
    compare(sizes, {.steps = 4, .counts_targets = true}, 1e-10);
}

// Losses and norms as of float32 in one process, to the precision of bfloat16.
RANKS_TEST(GPT2On3D, InBfloat16WithMasters, Ranks(4, 8)) {
  torch::set_num_threads(1);
  models::GPT2 whole = whole_net({.type = at::kFloat});
  OnMesh on_mesh({.tensor = size() / 4, .pipeline = 2}, {.type = at::kBFloat16});
  const std::vector<double> expected = train_whole(whole, {}), values = on_mesh.train();
  ASSERT_EQ(values.size(), expected.size());
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], expected[i], 0.05) << "value " << i;
  EXPECT_LT(values[values.size() - 2], values[0] - 0.5);
}

// A gradient that is not finite on one rank skips the step of all, whatever axis they share.
RANKS_TEST(GPT2On3D, OverflowSkipsOnAllRanks, Ranks(4), Backends("shm", "tcp")) {
  torch::set_num_threads(1);
  const Training training{.steps = 1};
  for (const ModelParallelSizes& sizes :
       {ModelParallelSizes{.pipeline = 2}, ModelParallelSizes{.tensor = 2}, ModelParallelSizes{.context = 2},
        ModelParallelSizes{.tensor = 2, .pipeline = 2}}) {
    SCOPED_TRACE(words_of(sizes));
    models::GPT2 whole = whole_net(training);
    OnMesh on_mesh(sizes, training);
    GradScaler scaler({.init_scale = 1024});
    const TextBatch batch(0);
    on_mesh.pass(batch, scaler.scale(1.0));
    if (rank() == 1) on_mesh.net->parameters().front().mutable_grad().view(-1)[0] = INFINITY;
    EXPECT_FALSE(scaler.step(on_mesh.optimizer));
    scaler.update();
    on_mesh.optimizer.zero_grad();
    EXPECT_EQ(scaler.get_scale(), 512);
    expect_parts(*on_mesh.net, *whole, 0);

    EXPECT_NEAR(on_mesh.pass(batch, scaler.scale(1.0)), train_whole(whole, training)[0], 1e-10);
    scaler.unscale_(on_mesh.optimizer);
    on_mesh.norm.clip_grad_norm_(on_mesh.model, CLIP);
    EXPECT_TRUE(scaler.step(on_mesh.optimizer));
    scaler.update();
    expect_parts(*on_mesh.net, *whole, 1e-9);
  }
}

}  // namespace
}  // namespace gpt2_3d
}  // namespace lockstep

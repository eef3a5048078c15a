// A pipeline against one process that runs all stages on the whole batch, and against its own table.
#include "lockstep/parallel/pipeline/pipeline.h"

#include <gmock/gmock.h>

#include <set>

#include "lockstep/schedules/pipeline_timeline.h"
#include "testing/operator_calls.h"
#include "testing/pipeline_nets.h"
#include "testing/ranks.h"

namespace lockstep::pipeline_ranks_test {
namespace {

using namespace lockstep::testing;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr double TOLERANCE = 1e-10;
constexpr RecomputeMode MODES[] = {RecomputeMode::NEVER, RecomputeMode::EXCEPT_LAST, RecomputeMode::ALWAYS};

// Runs each batch and compares with one process. Batches of 2 p + 3 rows are indivisible by most m; 1 row is
// fewer than most m.
void expect_one_process(const PipelineShape& shape, const ProcessGroup& group) {
  PartNets mine(shape, group.rank());
  Whole whole(shape.parts());
  Pipeline pipeline(mine.stages(), squared_error, options_of(shape), group);
  for (const std::int64_t rows : {2 * group.size() + 3, 1, 4 * group.size()}) {
    const std::string where = to_text(shape) + ", batch of " + std::to_string(rows);
    const at::Tensor x = pipeline_rows(rows, 7), y = pipeline_rows(rows, 8);
    mine.zero_grad();
    const PipelineResult result = pipeline.step(x, y);
    ASSERT_NEAR(result.loss, whole.step(x, y), TOLERANCE) << where;
    ASSERT_EQ(result.losses.size(),
              static_cast<std::size_t>(std::min<std::int64_t>(rows, shape.micro_batches)));
    whole.expect_equal(mine, TOLERANCE, where);
  }
}

RANKS_TEST(Pipeline, EqualsOneProcessForEveryScheduleAndNumberOfMicroBatches, Ranks(1, 2, 3, 4)) {
  for (int m = 1; m <= 2 * size(); ++m)
    for (const PipelineShape& shape : runnable_shapes(size(), m)) expect_one_process(shape, world());
}

RANKS_TEST(Pipeline, EqualsOneProcessWithRecomputing, Ranks(1, 2, 3, 4)) {
  for (const auto mode : MODES)
    for (const int m : {1, size() + 1})
      for (const PipelineShape& shape : runnable_shapes(size(), m, mode)) expect_one_process(shape, world());
}

// Threads of one process share the generator that the initial values are drawn from.
RANKS_TEST(Pipeline, EqualsOneProcessOverEveryBackend, Ranks(2, 3, 4), BackendsWithPeers(),
           Except("thread")) {
  for (const PipelineShape& shape : runnable_shapes(size(), size() + 1)) expect_one_process(shape, world());
}

// The numbers that the stage drew in the forward are drawn again: gradients have the same bits as without
// recomputing, where the order of the forwards is the same. ZB_V's for unequal parts is not.
RANKS_TEST(Pipeline, RecomputesWithTheSameDropout, Ranks(1, 2, 3)) {
  for (PipelineShape shape : runnable_shapes(size(), 2 * size())) {
    if (!shape.work.part_sizes.empty()) continue;
    std::vector<at::Tensor> kept;
    for (const auto mode : MODES) {
      shape.recompute = mode;
      PartNets mine(shape, rank(), /*dropout=*/0.5);
      Pipeline pipeline(mine.stages(), squared_error, options_of(shape), world());
      torch::manual_seed(static_cast<std::uint64_t>(rank()));
      pipeline.step(pipeline_rows(9, 1), pipeline_rows(9, 2));
      if (mode == RecomputeMode::NEVER) kept = mine.gradients();
      const std::vector<at::Tensor> now = mine.gradients();
      for (std::size_t i = 0; i < now.size(); ++i)
        ASSERT_TRUE(now[i].equal(kept[i])) << to_text(shape) << ' ' << i;
      EXPECT_GT(now[0].abs().sum().item<double>(), 0);
    }
  }
}

// What is in memory, counted while it runs, against the table.
RANKS_TEST(Pipeline, KeepsAsManyMicroBatchesAsItsTable, Ranks(1, 2, 3, 4)) {
  for (const auto mode : MODES)
    for (int m = 1; m <= 2 * size(); ++m)
      for (const PipelineShape& shape : runnable_shapes(size(), m, mode)) {
        PartNets mine(shape, rank());
        Pipeline pipeline(mine.stages(), squared_error, options_of(shape), world());
        pipeline.step(pipeline_rows(m, 1), pipeline_rows(m, 2));
        const RankTimeline table =
            pipeline_timeline(pipeline_schedule(shape)).ranks[static_cast<std::size_t>(rank())];
        ASSERT_EQ(pipeline.stats().peak_in_flight, table.peak_in_flight) << to_text(shape);
        ASSERT_EQ(pipeline.stats().peak_activations, table.peak_activations) << to_text(shape);
      }
}

// How often the rank's row computes gradients of weights: with each BACKWARD, and for each chunk once where
// BACKWARD_WEIGHTs have nothing else between them.
int weight_computations(const PipelineActions& row) {
  int computations = 0;
  std::set<int> chunks;
  for (const PipelineAction& action : row) {
    if (action.kind == PipelineActionKind::BACKWARD_WEIGHT) {
      computations += chunks.insert(action.chunk).second ? 1 : 0;
      continue;
    }
    chunks.clear();
    if (action.kind == PipelineActionKind::BACKWARD) ++computations;
  }
  return computations;
}

// Counted while it runs: each part has two weights, and micro-batches have one row each.
RANKS_TEST(Pipeline, ComputesTheWeightsOfWaitingMicroBatchesTogether, Ranks(1, 2, 3, 4)) {
  for (int m = 1; m <= 2 * size(); ++m)
    for (const PipelineShape& shape : runnable_shapes(size(), m)) {
      PartNets mine(shape, rank());
      Whole whole(shape.parts());
      Pipeline pipeline(mine.stages(), squared_error, options_of(shape), world());
      const at::Tensor x = pipeline_rows(m, 1), y = pipeline_rows(m, 2);
      pipeline.step(x, y);  // the gradients that are added to
      const auto calls = operator_calls([&] { pipeline.step(x, y); });
      const PipelineActions row = pipeline_schedule(shape).ranks[static_cast<std::size_t>(rank())];
      ASSERT_EQ(calls.at("aten::addmm_"), 2 * weight_computations(row)) << to_text(shape);
      (2 * squared_error(whole.forward(x), y)).backward();
      whole.expect_equal(mine, TOLERANCE, to_text(shape));
    }
}

// A forward with recomputing runs m times more: torchgpipe's check of its checkpoint modes, 2, 1 and 0 of 2.
RANKS_TEST(Pipeline, RunsForwardsAgainAsTheModeSays, Ranks(1, 2)) {
  const int expected[] = {2, 3, 4};
  for (const auto mode : MODES) {
    int forwards = 0;
    torch::nn::Sequential net = pipeline_part(rank());
    const PipelineStage stage = [&](const at::Tensor& x) {
      ++forwards;
      return net->forward(x);
    };
    Pipeline pipeline({stage}, squared_error,
                      {.schedule = PipelineScheduleKind::GPIPE, .micro_batches = 2, .recompute = mode},
                      world());
    pipeline.step(pipeline_rows(4, 1), pipeline_rows(4, 2));
    EXPECT_EQ(forwards, expected[static_cast<std::size_t>(mode)]);
  }
}

RANKS_TEST(Pipeline, SumsLossesAndAddsGradientsOfSteps, Ranks(1, 2, 3)) {
  const PipelineShape shape{.stages = size(), .micro_batches = 3};
  PartNets mine(shape, rank());
  Whole whole(size());
  Pipeline pipeline(
      mine.stages(),
      [](const at::Tensor& output, const at::Tensor& target) { return (output - target).square().sum(); },
      {.micro_batches = 3, .reduction = LossReduction::SUM}, world());
  const at::Tensor x = pipeline_rows(7, 1), y = pipeline_rows(7, 2);
  const at::Tensor loss = 2 * (whole.forward(x) - y).square().sum();
  loss.backward();
  double sum = 0;
  for (int step = 0; step < 2; ++step) sum += pipeline.step(x, y).loss;
  EXPECT_NEAR(sum, loss.item<double>(), 1e-9);
  whole.expect_equal(mine, 1e-9, "two steps");
}

RANKS_TEST(Pipeline, EvaluatesWithoutGradients, Ranks(1, 2, 3)) {
  for (const PipelineShape& shape : runnable_shapes(size(), 3)) {
    PartNets mine(shape, rank());
    Whole whole(shape.parts());
    Pipeline pipeline(mine.stages(), squared_error, options_of(shape), world());
    const at::Tensor x = pipeline_rows(5, 1), y = pipeline_rows(5, 2);
    const PipelineResult result = pipeline.eval(pipeline.is_first() ? at::TensorList(x) : at::TensorList(),
                                                pipeline.is_last() ? at::TensorList(y) : at::TensorList());
    const at::Tensor output = whole.forward(x);
    EXPECT_NEAR(result.loss, squared_error(output, y).item<double>(), TOLERANCE);
    if (pipeline.is_last()) {
      ASSERT_EQ(result.outputs.size(), 1);
      EXPECT_TRUE(at::allclose(result.outputs[0], output, TOLERANCE, TOLERANCE));
    } else {
      EXPECT_TRUE(result.outputs.empty());
    }
    for (const at::Tensor& gradient : mine.gradients()) EXPECT_FALSE(gradient.defined());
    EXPECT_EQ(pipeline.eval(x).loss, 0);  // no targets
    pipeline.step(x, y);                  // a step behind it
    whole.step(x, y);
    whole.expect_equal(mine, TOLERANCE, to_text(shape));
  }
}

}  // namespace
}  // namespace lockstep::pipeline_ranks_test

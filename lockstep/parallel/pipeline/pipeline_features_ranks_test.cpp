// What travels between stages besides one tensor, and what stages share, against one process.
#include <gmock/gmock.h>

#include <numeric>
#include <stdexcept>

#include "lockstep/base/error.h"
#include "lockstep/job/groups.h"
#include "lockstep/optim/clip_grad.h"
#include "lockstep/optim/lamb.h"
#include "lockstep/parallel/pipeline/balance.h"
#include "lockstep/parallel/pipeline/deferred_batch_norm.h"
#include "lockstep/parallel/pipeline/pipeline.h"
#include "lockstep/parallel/pipeline/pipeline_skip.h"
#include "testing/pipeline_nets.h"
#include "testing/ranks.h"

namespace lockstep::pipeline_features_ranks_test {
namespace {

using namespace lockstep::testing;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr double TOLERANCE = 1e-10;
using Tensors = std::vector<at::Tensor>;

void expect_gradients(torch::nn::Sequential& mine, torch::nn::Sequential& whole, const std::string& where) {
  const auto expected = whole->parameters();
  const auto now = mine->parameters();
  for (std::size_t i = 0; i < now.size(); ++i) {
    ASSERT_TRUE(now[i].grad().defined()) << where;
    EXPECT_TRUE(at::allclose(now[i].grad(), expected[i].grad(), TOLERANCE, TOLERANCE)) << where << ' ' << i;
  }
}

// A skip tensor of the first part that the last part adds, and one within the first part.
at::Tensor with_skips(torch::nn::Sequential& net, const at::Tensor& x, bool is_first, bool is_last) {
  at::Tensor y = net->forward(x);
  if (is_first) {
    pipeline_stash("around", y * 2);
    pipeline_stash("near", x);
    y = y.tanh() + pipeline_pop("near");
  }
  if (is_last) y = y + pipeline_pop("around").square();
  return y;
}

RANKS_TEST(PipelineFeatures, SkipTensorsGoPastTheStagesBetween, Ranks(1, 2, 3, 4)) {
  for (const auto mode : {RecomputeMode::NEVER, RecomputeMode::ALWAYS})
    for (const PipelineShape& shape : runnable_shapes(size(), 3, mode)) {
      PartNets mine(shape, rank());
      Whole whole(shape.parts());
      std::vector<PipelineStage> stages;
      for (std::size_t k = 0; k < mine.nets.size(); ++k)
        stages.emplace_back([net = mine.nets[k], part = mine.parts[k], shape](const at::Tensor& x) mutable {
          return with_skips(net, x, part == 0, part + 1 == shape.parts());
        });
      Pipeline pipeline(stages, squared_error, options_of(shape), world());
      const at::Tensor x = pipeline_rows(7, 1), y = pipeline_rows(7, 2);
      at::Tensor z = x;
      for (int part = 0; part < shape.parts(); ++part)
        z = with_skips(whole.nets[static_cast<std::size_t>(part)], z, part == 0, part + 1 == shape.parts());
      const at::Tensor loss = squared_error(z, y);
      loss.backward();
      EXPECT_NEAR(pipeline.step(x, y).loss, loss.item<double>(), TOLERANCE) << to_text(shape);
      whole.expect_equal(mine, TOLERANCE, to_text(shape));
    }
}

// Integers, an optional tensor, one that needs no gradient, one that nobody uses, and an empty one.
Tensors several_values(torch::nn::Sequential& net, const Tensors& in) {
  const at::Tensor hidden = net->forward(in[0]);
  const at::Tensor rows = in[1];  // int64: a row of each row
  const at::Tensor chosen = hidden.gather(1, rows.unsqueeze(1).expand_as(hidden));
  const at::Tensor extra = in[2].defined() ? in[2] : chosen.detach() * 0.5;
  return {hidden + chosen * extra, rows, in[2].defined() ? at::Tensor() : extra, hidden.slice(0, 0, 0),
          hidden * 3};
}

RANKS_TEST(PipelineFeatures, AnyTensorsTravel, Ranks(1, 2, 3, 4)) {
  for (const PipelineShape& shape : runnable_shapes(size(), 3)) {
    PartNets mine(shape, rank());
    Whole whole(shape.parts());
    std::vector<PipelineStage> stages;
    for (const auto& net : mine.nets)
      stages.emplace_back([net = net](const Tensors& in) mutable { return several_values(net, in); });
    const auto loss_of = [](const Tensors& out, const Tensors& targets) {
      return squared_error(out[0], targets[0]);
    };
    Pipeline pipeline(stages, loss_of, options_of(shape), world());
    const at::Tensor x = pipeline_rows(7, 1), y = pipeline_rows(7, 2);
    const at::Tensor rows = at::arange(7).remainder(PIPELINE_WIDTH);
    Tensors values = {x, rows, at::Tensor()};
    for (auto& net : whole.nets) values = several_values(net, values);
    const at::Tensor loss = loss_of(values, {y});
    loss.backward();
    for (int step = 0; step < 2; ++step) {  // the second one knows the shapes
      mine.zero_grad();
      EXPECT_NEAR(pipeline.step({x, rows, at::Tensor()}, y).loss, loss.item<double>(), TOLERANCE)
          << to_text(shape);
      whole.expect_equal(mine, TOLERANCE, to_text(shape));
    }
  }
}

// A batch whose other sizes differ has shapes of its own; nothing needs to be said about it.
RANKS_TEST(PipelineFeatures, SequencesOfOtherLengthsPass, Ranks(2, 3)) {
  const PipelineShape shape{.stages = size(), .micro_batches = 2};
  PartNets mine(shape, rank());
  Whole whole(size());
  Pipeline pipeline(mine.stages(), squared_error, options_of(shape), world());
  for (const std::int64_t length : {3, 5, 3}) {
    const at::Tensor x = random_values({4, length, PIPELINE_WIDTH}, 1), y = x * 2;
    mine.zero_grad();
    EXPECT_NEAR(pipeline.step(x, y).loss, whole.step(x, y), TOLERANCE);
    whole.expect_equal(mine, TOLERANCE, "length " + std::to_string(length));
  }
}

// No gradient travels to a rank whose parameters are all frozen.
RANKS_TEST(PipelineFeatures, FrozenStagesGetNoGradient, Ranks(1, 2, 3)) {
  for (const PipelineShape& shape : runnable_shapes(size(), 3)) {
    PartNets mine(shape, rank());
    Whole whole(shape.parts());
    const auto freeze = [](torch::nn::Sequential& net) {
      for (at::Tensor& parameter : net->parameters()) parameter.set_requires_grad(false);
    };
    for (std::size_t k = 0; k < mine.parts.size(); ++k)
      if (mine.parts[k] == 0) freeze(mine.nets[k]);
    if (shape.parts() > 1)
      freeze(whole.nets[0]);
    else
      continue;
    Pipeline pipeline(mine.stages(), squared_error, options_of(shape), world());
    const at::Tensor x = pipeline_rows(7, 1), y = pipeline_rows(7, 2);
    EXPECT_NEAR(pipeline.step(x, y).loss, whole.step(x, y), TOLERANCE) << to_text(shape);
    for (std::size_t k = 0; k < mine.parts.size(); ++k) {
      if (mine.parts[k] == 0) {
        for (const at::Tensor& parameter : mine.nets[k]->parameters())
          EXPECT_FALSE(parameter.grad().defined());
      } else {
        expect_gradients(mine.nets[k], whole.nets[static_cast<std::size_t>(mine.parts[k])], to_text(shape));
      }
    }
  }
}

// An embedding whose weight is the output layer, too: both uses add up, over steps as well.
RANKS_TEST(PipelineFeatures, TiedWeightsGetTheGradientsOfAllTheirStages, Ranks(1, 2, 3)) {
  const auto weight = [](double value) {
    return random_values({9, PIPELINE_WIDTH}, 3).mul_(value).requires_grad_();
  };
  for (const PipelineShape& shape : runnable_shapes(size(), 3)) {
    PartNets mine(shape, rank());
    Whole whole(shape.parts());
    const at::Tensor tied = weight(rank() + 1.0);  // rank 0's value counts
    std::vector<PipelineStage> stages;
    for (std::size_t k = 0; k < mine.nets.size(); ++k)
      stages.emplace_back([net = mine.nets[k], part = mine.parts[k], last = shape.parts() - 1,
                           tied](const at::Tensor& in) mutable {
        const at::Tensor y = net->forward(part == 0 ? at::embedding(tied, in) : in);
        return part == last ? at::linear(y, tied) : y;
      });
    Pipeline pipeline(stages, squared_error, options_of(shape), world());
    pipeline.tie("weight", pipeline.is_first() || pipeline.is_last() ? tied : at::Tensor());
    const at::Tensor answer = weight(1), tokens = at::arange(7), y = random_values({7, 9}, 2);
    const at::Tensor loss =
        squared_error(at::linear(whole.forward(at::embedding(answer, tokens)), answer), y);
    (2 * loss).backward();
    for (int step = 0; step < 2; ++step)
      EXPECT_NEAR(pipeline.step(tokens, y).loss, loss.item<double>(), TOLERANCE) << to_text(shape);
    if (pipeline.is_first() || pipeline.is_last())
      EXPECT_TRUE(at::allclose(tied.grad(), answer.grad(), TOLERANCE, TOLERANCE)) << to_text(shape);
    whole.expect_equal(mine, TOLERANCE, to_text(shape));
  }
}

// loss = sum(w * x) of the rows that count, by hand: the gradient of w is the sum of these rows over the
// number of all, in every micro-batch of both pipelines. Three rows of the first count, and five of the
// second.
RANKS_TEST(PipelineFeatures, DividesByTheCountOfAllReplicas, Ranks(2, 4)) {
  const int copy = rank() % 2;
  const ProcessGroup line = split_group(world(), copy), replicas = split_group(world(), rank() / 2);
  const at::Tensor w = at::ones({}, at::kDouble).requires_grad_();
  const PipelineStage stage = [&](const at::Tensor& x) { return w * x; };
  const auto sum_of = [](const at::Tensor& out, const at::Tensor& counts) { return (out * counts).sum(); };
  const auto count = [](at::TensorList targets) { return targets[0].sum().item<double>(); };
  const PipelineOptions options{
      .micro_batches = 4, .reduction = LossReduction::SUM, .count = count, .replicas = replicas};
  Pipeline pipeline({stage}, sum_of, options, line);
  const at::Tensor x = at::arange(6, at::kDouble) + 10 * copy;
  const at::Tensor counts = (at::arange(6) < 3 + 2 * copy).to(at::kDouble);
  const double sum = (x * counts).sum().item<double>();  // 0 + 1 + 2, and 10 + ... + 14
  EXPECT_NEAR(pipeline.step(x, counts, /*grad_scale=*/2).loss, sum / 4, TOLERANCE);
  EXPECT_NEAR(w.grad().item<double>(), 2 * sum / 4, TOLERANCE);  // so the average of both is (3 + 60) / 8
  EXPECT_NEAR(pipeline.step(x, at::zeros({6}, at::kDouble)).loss, 0, TOLERANCE);  // nothing counts
  EXPECT_NEAR(w.grad().item<double>(), 2 * sum / 4, TOLERANCE);
}

// The other replica finishes its step: a count of 0 came from the one that failed.
RANKS_TEST(PipelineFeatures, AReplicaThatFailsKeepsNobodyWaiting, Ranks(2)) {
  const ProcessGroup alone = split_group(world(), rank());
  const PipelineOptions options{.micro_batches = 2,
                                .reduction = LossReduction::SUM,
                                .count =
                                    [](at::TensorList targets) {
                                      if (targets[0].min().item<double>() < 0)
                                        throw std::runtime_error("no count");
                                      return targets[0].sum().item<double>();
                                    },
                                .replicas = world()};
  const at::Tensor w = at::ones({}, at::kDouble).requires_grad_();
  Pipeline pipeline({[&](const at::Tensor& x) { return w * x; }}, squared_error, options, alone);
  const at::Tensor x = at::ones({4}, at::kDouble);
  const auto step = [&] { pipeline.step(x, rank() == 0 ? -x : x); };
  if (rank() == 0) EXPECT_THAT(step, ThrowsMessage<std::runtime_error>(HasSubstr("no count")));
  if (rank() == 1) step();
}

// A stage has a part of the gradients, so their norm is not the model's.
void expect_no_norm(const ProcessGroup& group, bool is_function, RecomputeMode mode) {
  const PipelineShape shape{.stages = group.size(), .micro_batches = 2, .recompute = mode};
  PartNets mine(shape, group.rank());
  std::vector<PipelineStage> stages = mine.stages();
  if (is_function) stages = {[net = mine.nets[0]](const at::Tensor& x) mutable { return net->forward(x); }};
  std::vector<at::Tensor> parameters = mine.nets[0]->parameters();
  optim::LAMB optimizer(parameters, optim::LAMBOptions(0.1).max_grad_norm(1));
  Pipeline pipeline(stages, squared_error, options_of(shape), group);
  pipeline.step(pipeline_rows(4, 1), pipeline_rows(4, 2));
  if (group.size() == 1) {
    EXPECT_GT(clip_grad_norm_(parameters, 1), 0);
    optimizer.step();
    return;
  }
  EXPECT_THAT([&] { clip_grad_norm_(parameters, 1); },
              ThrowsMessage<InvalidArgument>(HasSubstr("belongs to one stage of a pipeline")));
  EXPECT_THAT([&] { optimizer.step(); },
              ThrowsMessage<InvalidArgument>(HasSubstr("GradientNorm::reduce_norms(optimizer)")));
}

RANKS_TEST(PipelineFeatures, TheNormOfOneStageIsRefused, Ranks(1, 2, 3)) {
  for (const bool is_function : {false, true})
    for (const auto mode : {RecomputeMode::NEVER, RecomputeMode::ALWAYS})
      expect_no_norm(world(), is_function, mode);
}

// Running statistics are those of BatchNorm on the whole batch, with recomputing as well.
RANKS_TEST(PipelineFeatures, DeferredBatchNormMovesOnceAStepByTheWholeBatch, Ranks(1, 2, 3)) {
  for (const auto mode : {RecomputeMode::NEVER, RecomputeMode::ALWAYS}) {
    torch::nn::Sequential net{DeferredBatchNorm(PIPELINE_WIDTH)};
    net->to(at::kDouble);
    torch::nn::BatchNorm1d answer(PIPELINE_WIDTH);
    answer->to(at::kDouble);
    Pipeline pipeline({net}, squared_error, {.micro_batches = 3, .recompute = mode}, world());
    for (int step = 0; step < 2; ++step) {
      const at::Tensor x = pipeline_rows(7, static_cast<std::uint64_t>(step));
      if (pipeline.is_first()) answer->forward(x);
      pipeline.step(x, x);
    }
    const auto buffers = net->named_buffers();
    EXPECT_EQ(buffers["0.num_batches_tracked"].item<int>(), 2);
    if (!pipeline.is_first()) continue;
    EXPECT_TRUE(at::allclose(buffers["0.running_mean"], answer->running_mean, TOLERANCE, TOLERANCE));
    EXPECT_TRUE(at::allclose(buffers["0.running_var"], answer->running_var, TOLERANCE, TOLERANCE));
  }
}

// Layers of a Sequential, of which each part is one or more.
torch::nn::Sequential numbered_layers(int count) {
  torch::manual_seed(1);
  torch::nn::Sequential layers;
  for (int i = 0; i < count; ++i) layers->push_back(torch::nn::Linear(PIPELINE_WIDTH, PIPELINE_WIDTH));
  layers->to(at::kDouble);
  return layers;
}

// Trains parts of `whole` for a step, and compares loss and gradients with one process by their names.
void expect_parts_equal(const std::vector<torch::nn::Sequential>& parts, torch::nn::Sequential whole,
                        const PipelineOptions& options, const ProcessGroup& group) {
  Pipeline pipeline(std::vector<PipelineStage>(parts.begin(), parts.end()), squared_error, options, group);
  const at::Tensor x = pipeline_rows(7, 1), y = pipeline_rows(7, 2);
  const at::Tensor loss = squared_error(whole->forward(x), y);
  loss.backward();
  EXPECT_NEAR(pipeline.step(x, y).loss, loss.item<double>(), TOLERANCE);
  const auto expected = whole->named_parameters();
  for (const torch::nn::Sequential& part : parts)
    for (const auto& entry : part->named_parameters())
      EXPECT_TRUE(at::allclose(entry.value().grad(), expected[entry.key()].grad(), TOLERANCE, TOLERANCE))
          << entry.key();
}

// A model that is cut by a list: each rank's layers keep the names that they have in the whole.
RANKS_TEST(PipelineFeatures, ASequentialIsPlacedByBalance, Ranks(1, 2, 3)) {
  const torch::nn::Sequential layers = numbered_layers(6);
  const auto balance = balance_by_time(size(), layers, pipeline_rows(4, 1), world());
  EXPECT_EQ(at::IntArrayRef(balance).size(), static_cast<std::size_t>(size()));
  expect_parts_equal({sequential_part(layers, balance, rank())}, numbered_layers(6), {.micro_batches = 2},
                     world());
}

// By the bytes of parameters and of what is kept for backward. The layer of 100 x 100 outweighs the four
// behind it, and is best together with the smaller one of the two sides.
RANKS_TEST(PipelineFeatures, ASequentialIsPlacedBySize, Ranks(2, 3)) {
  torch::nn::Sequential layers(torch::nn::Linear(6, 100), torch::nn::Linear(100, 100),
                               torch::nn::Linear(100, 6));
  for (int i = 0; i < 3; ++i) layers->push_back(torch::nn::Linear(6, 6));
  const std::vector<std::int64_t> of_two = {2, 4}, of_three = {1, 1, 4};
  EXPECT_EQ(balance_by_size(size(), layers, torch::ones({2, 6}), 1, 2, world()),
            size() == 2 ? of_two : of_three);
}

// A cut for ZB_V: the same on every rank, with all that was measured in the sizes of its parts.
RANKS_TEST(PipelineFeatures, ASequentialIsPlacedForAV, Ranks(1, 2, 3, 4)) {
  const PipelineShape shape = {
      .kind = PipelineScheduleKind::ZB_V, .stages = size(), .micro_batches = 3, .virtual_stages = 2};
  const torch::nn::Sequential layers = numbered_layers(10);
  const PipelineBalance balance = balance_by_time(shape, layers, pipeline_rows(4, 1), world());
  ASSERT_EQ(balance.layers.size(), static_cast<std::size_t>(2 * size()));
  const PipelineWork& work = balance.work;
  EXPECT_NEAR(std::accumulate(work.part_sizes.begin(), work.part_sizes.end(), 0.0),
              work.forward + work.backward_input + work.backward_weight, 1e-9);
  const auto part = [&](int chunk) {
    return sequential_part(layers, balance.layers, shape.part_of(rank(), chunk));
  };
  expect_parts_equal({part(0), part(1)}, numbered_layers(10),
                     {.schedule = shape.kind, .micro_batches = 3, .work = work}, world());
}

}  // namespace
}  // namespace lockstep::pipeline_features_ranks_test

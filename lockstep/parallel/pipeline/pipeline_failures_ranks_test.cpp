// Stages that throw in each phase, ranks that disagree or die: who is told what, and that nobody waits.
#include <gmock/gmock.h>

#include <functional>
#include <stdexcept>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/job/job.h"
#include "lockstep/parallel/pipeline/pipeline.h"
#include "lockstep/parallel/pipeline/pipeline_skip.h"
#include "testing/pipeline_nets.h"
#include "testing/ranks.h"

namespace lockstep::pipeline_failures_ranks_test {
namespace {

using namespace lockstep::testing;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Where a stage calls `act`, which throws or dies, once.
enum class Phase { NONE, FORWARD, RECOMPUTE, INPUT_GRADIENT, WEIGHT_GRADIENT, LOSS };

// The identity, whose backward calls a function.
struct CallInBackward : torch::autograd::Function<CallInBackward> {
  static inline std::function<void()> act;
  static at::Tensor forward(torch::autograd::AutogradContext* /*context*/, const at::Tensor& x) {
    return x.clone();
  }
  static std::vector<at::Tensor> backward(torch::autograd::AutogradContext* /*context*/,
                                          const std::vector<at::Tensor>& gradients) {
    act();
    return gradients;
  }
};

// A stage that acts in one phase of its second micro-batch, if it is this rank's turn.
struct Trouble {
  torch::nn::Sequential net;
  Phase phase;
  std::function<void()> act;
  int forwards = 0;

  at::Tensor forward(const at::Tensor& x) {
    // With recomputing, the first forward at most runs with autograd, to learn what requires a gradient.
    const bool is_recomputed = forwards > 0 && at::GradMode::is_enabled();
    ++forwards;
    if (phase == Phase::FORWARD && forwards == 2) act();
    if (phase == Phase::RECOMPUTE && is_recomputed) act();
    CallInBackward::act = act;
    at::Tensor y = x;
    if (phase == Phase::INPUT_GRADIENT) y = CallInBackward::apply(y);
    if (phase == Phase::WEIGHT_GRADIENT)  // on the way to a parameter alone
      return net->forward(y) + CallInBackward::apply(net->parameters()[0]).sum();
    return net->forward(y);
  }
};

[[noreturn]] void throw_burnt() { throw std::runtime_error("the layer burnt out"); }

// One step in which `act` happens on `bad_rank`, in its first chunk, in the phase; or in the loss.
void troubled_step(const ProcessGroup& group, const PipelineShape& shape, Phase phase, int bad_rank,
                   const std::function<void()>& act) {
  const bool is_bad = group.rank() == bad_rank;
  std::vector<PipelineStage> stages;
  for (int chunk = 0; chunk < shape.virtual_stages; ++chunk) {
    auto trouble = std::make_shared<Trouble>(Trouble{pipeline_part(shape.part_of(group.rank(), chunk)),
                                                     is_bad && chunk == 0 ? phase : Phase::NONE, act});
    stages.emplace_back([trouble](const at::Tensor& x) { return trouble->forward(x); });
  }
  const auto loss = [&](const at::Tensor& output, const at::Tensor& target) {
    if (is_bad && phase == Phase::LOSS) act();
    return squared_error(output, target);
  };
  Pipeline pipeline(stages, loss, options_of(shape), group);
  pipeline.step(pipeline_rows(6, 1), pipeline_rows(6, 2));
}

std::vector<Phase> phases_of(const PipelineShape& shape, bool is_last) {
  std::vector<Phase> phases = {Phase::FORWARD, Phase::INPUT_GRADIENT, Phase::WEIGHT_GRADIENT};
  if (shape.recompute != RecomputeMode::NEVER) phases.push_back(Phase::RECOMPUTE);
  if (is_last) phases.push_back(Phase::LOSS);
  return phases;
}

// The part that fails; `bad_rank` fails in its first chunk, or in the loss, which belongs to the last part.
int bad_part(const PipelineShape& shape, Phase phase, int bad_rank) {
  return phase == Phase::LOSS ? shape.parts() - 1 : shape.part_of(bad_rank, 0);
}

bool has_last_part(const PipelineShape& shape, int rank) {
  return shape.part_of(rank, shape.virtual_stages - 1) == shape.parts() - 1;
}

void expect_failure(const PipelineShape& shape, Phase phase, int bad_rank, const ProcessGroup& group) {
  const auto step = [&] { troubled_step(group, shape, phase, bad_rank, throw_burnt); };
  if (group.rank() == bad_rank) {
    EXPECT_THAT(step, ThrowsMessage<std::runtime_error>(HasSubstr("the layer burnt out"))) << to_text(shape);
    return;
  }
  try {
    step();
    ADD_FAILURE() << to_text(shape) << ": rank " << bad_rank << " failed, and nobody said so";
  } catch (const StageFailed& failed) {
    EXPECT_EQ(failed.rank(), bad_rank);
    EXPECT_EQ(failed.stage(), bad_part(shape, phase, bad_rank)) << to_text(shape);
    EXPECT_THAT(failed.what(), AllOf(HasSubstr("rank " + std::to_string(bad_rank) + " failed in the "),
                                     HasSubstr("the layer burnt out"), HasSubstr("micro-batch")));
  }
}

RANKS_TEST(PipelineFailures, AnExceptionInEachPhaseReachesAllRanks, Ranks(1, 2, 3, 4),
           Backends("shm", "tcp")) {
  for (const auto mode : {RecomputeMode::NEVER, RecomputeMode::ALWAYS})
    for (const PipelineShape& shape : runnable_shapes(size(), 3, mode))
      for (int bad = 0; bad < size(); ++bad)
        for (const Phase phase : phases_of(shape, has_last_part(shape, bad))) {
          // the first part's input needs no gradient
          if (phase == Phase::INPUT_GRADIENT && shape.part_of(bad, 0) == 0) continue;
          expect_failure(shape, phase, bad, world());
        }
}

RANKS_TEST(PipelineFailures, NameThePhaseAndTheMicroBatch, Ranks(3)) {
  const auto words = [&](Phase phase, RecomputeMode mode, const std::string& expected) {
    const PipelineShape shape = {PipelineScheduleKind::ZB_H1, size(), 3, 1, mode};
    try {
      troubled_step(world(), shape, phase, 1, throw_burnt);
    } catch (const StageFailed& failed) {
      EXPECT_THAT(failed.what(), HasSubstr("rank 1 failed in " + expected + " of stage 1: "));
    } catch (const std::runtime_error&) {
      EXPECT_EQ(rank(), 1);
    }
  };
  words(Phase::FORWARD, RecomputeMode::NEVER, "the forward of micro-batch 1");
  words(Phase::RECOMPUTE, RecomputeMode::ALWAYS, "the recomputed forward of micro-batch 0");
  words(Phase::INPUT_GRADIENT, RecomputeMode::NEVER,
        "the backward (gradients of the inputs) of micro-batch 0");
  words(Phase::WEIGHT_GRADIENT, RecomputeMode::NEVER,
        "the backward (gradients of the parameters) of micro-batch 0");
}

// After a failure in its first step, which agreed about nothing, and in a later one, a pipeline goes on.
RANKS_TEST(PipelineFailures, ThePipelineGoesOnAfterwards, Ranks(1, 2, 3, 4)) {
  for (const PipelineShape& shape : runnable_shapes(size(), 3)) {
    PartNets mine(shape, rank());
    Whole whole(shape.parts());
    bool breaks = false;
    std::vector<PipelineStage> stages;
    for (std::size_t k = 0; k < mine.nets.size(); ++k)
      stages.emplace_back([&breaks, net = mine.nets[k], part = mine.parts[k],
                           middle = shape.parts() / 2](const at::Tensor& x) mutable {
        if (breaks && part == middle) throw_burnt();
        return net->forward(x);
      });
    Pipeline pipeline(stages, squared_error, options_of(shape), world());
    const at::Tensor x = pipeline_rows(7, 1), y = pipeline_rows(7, 2);
    for (const bool breaks_now : {true, false, true, false}) {
      breaks = breaks_now;
      mine.zero_grad();
      if (breaks) {
        EXPECT_THROW(pipeline.step(x, y), std::runtime_error);
      } else {
        EXPECT_NEAR(pipeline.step(x, y).loss, whole.step(x, y), 1e-10) << to_text(shape);
        whole.expect_equal(mine, 1e-10, to_text(shape));
      }
    }
  }
}

RANKS_TEST(PipelineFailures, ABatchThatCannotBeCutIsRefusedOnAllRanks, Ranks(1, 2, 3)) {
  const PipelineShape shape{.stages = size(), .micro_batches = 2};
  PartNets mine(shape, rank());
  Pipeline pipeline(mine.stages(), squared_error, options_of(shape), world());
  const auto refused = [&](at::TensorList x, at::TensorList y, const std::string& words) {
    EXPECT_THAT([&] { pipeline.step(x, y); }, ThrowsMessage<Error>(HasSubstr(words)));
  };
  const at::Tensor rows = pipeline_rows(4, 1);
  refused({}, rows, "the batch has no input with rows");
  refused(at::ones({}), rows, "the batch has no input with rows");
  refused(at::ones({0, PIPELINE_WIDTH}), rows, "a batch of 0 rows");
  refused(rows, pipeline_rows(3, 1), "tensor 0 of inputs or targets has 3 rows, and the batch has 4");
  refused({rows, pipeline_rows(5, 1)}, rows, "tensor 1 of inputs or targets has 5 rows");
  refused({rows, rows}, rows, "a function that takes one tensor got 2");
  refused(rows, {}, "a function that takes one tensor got 0");
  pipeline.step(rows, rows);
}

// A stage whose output changes although the batch did not.
RANKS_TEST(PipelineFailures, AShapeThatChangesIsRefusedByName, Ranks(2, 3)) {
  int steps = 0;
  torch::nn::Sequential net = pipeline_part(rank());
  const PipelineStage stage = [&](const at::Tensor& x) {
    const at::Tensor y = net->forward(x);
    return steps > 0 && rank() == 0 ? y.to(at::kFloat) : y;
  };
  Pipeline pipeline({stage}, squared_error, {.micro_batches = 2}, world());
  const at::Tensor x = pipeline_rows(4, 1);
  pipeline.step(x, x);
  ++steps;
  EXPECT_THAT(
      [&] { pipeline.step(x, x); },
      ThrowsMessage<Error>(HasSubstr("stage 0 gave value 0 as [2, 6] float32 with a gradient, where [2, 6] "
                                     "float64 with a gradient was agreed for micro-batches of 2 rows")));
}

RANKS_TEST(PipelineFailures, SkipsThatDoNotMatchAreNamed, Ranks(1, 2, 3)) {
  const auto refused = [&](const std::function<at::Tensor(const at::Tensor&)>& stage,
                           const std::string& words) {
    Pipeline pipeline({PipelineStage(stage)}, squared_error, {.micro_batches = 2}, world());
    const at::Tensor x = pipeline_rows(4, 1);
    EXPECT_THAT([&] { pipeline.step(x, x); }, ThrowsMessage<Error>(HasSubstr(words)));
  };
  const bool is_first = rank() == 0, is_last = rank() + 1 == size();
  refused([&](const at::Tensor& x) { return is_last ? x + pipeline_pop("s") : x; },
          "nothing is stashed as \"s\"");
  refused([&](const at::Tensor& x) { return pipeline_stash("s" + std::to_string(is_first ? 0 : 1), x), x; },
          size() == 3 ? "\"s1\" is stashed already" : "nobody popped the skip tensor \"s0\"");
}

RANKS_TEST(PipelineFailures, RanksThatDisagreeAreNamed, Ranks(2, 3)) {
  PartNets mine({.stages = size()}, rank());
  const auto refused = [&](const PipelineOptions& options, const std::string& words) {
    EXPECT_THAT([&] { Pipeline(mine.stages(), squared_error, options, world()); },
                ThrowsMessage<Mismatch>(HasSubstr(words)));
  };
  refused({.micro_batches = rank() == 1 ? 3 : 2}, "micro_batches is 2 on rank 0 and 3 on rank 1");
  refused({.recompute = rank() == 1 ? RecomputeMode::ALWAYS : RecomputeMode::NEVER},
          "recompute is 0 on rank 0");
  refused({.work = {.backward_input = rank() == 1 ? 2.0 : 1.0}},
          "work.backward_input is 1 on rank 0 and 2 on rank 1");
  std::vector<double> sizes(static_cast<std::size_t>(size()), 1);
  refused({.work = {.part_sizes = rank() == 1 ? sizes : std::vector<double>()}},
          "the number of work.part_sizes is 0 on rank 0");
  if (rank() == 1) sizes.back() = 3;
  refused({.work = {.part_sizes = sizes}},
          str("work.part_sizes[", size() - 1, "] is 1 on rank 0 and 3 on rank 1"));
  const at::Tensor x = pipeline_rows(4, 1);
  Pipeline pipeline(mine.stages(), squared_error, {.micro_batches = 2}, world());
  const auto call = [&] { rank() == 1 ? pipeline.eval(x, x) : pipeline.step(x, x); };
  if (rank() == 1)
    EXPECT_THAT(call, ThrowsMessage<Mismatch>(HasSubstr("called eval() while the rank of the first")));
  else
    EXPECT_THAT(call, ThrowsMessage<StageFailed>(HasSubstr("rank 1 failed before its first micro-batch")));
  EXPECT_THAT([&] { pipeline.tie("w"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("\"w\" is held by no rank")));
  EXPECT_THAT(
      [&] { pipeline.tie("w", at::ones({rank() == 1 ? 3 : 2})); },
      ThrowsMessage<InvalidArgument>(HasSubstr("is [2] float32 on rank 0 but [3] float32 on rank 1")));
  pipeline.step(x, x);
}

RANKS_TEST(PipelineFailures, ARankThatHasLeftIsNamedWithWhatForItIsMissed, Ranks(2, 3),
           Backends("shm", "tcp")) {
  PartNets mine({.stages = size()}, rank());
  Pipeline pipeline(mine.stages(), squared_error, {.micro_batches = 2}, world());
  const at::Tensor x = pipeline_rows(4, 1);
  pipeline.step(x, x);
  if (rank() == size() - 1) return destroy_process_group();
  EXPECT_THAT(
      [&] { pipeline.step(x, x); },
      ThrowsMessage<PeerLost>(AllOf(HasSubstr("for a Pipeline"), HasSubstr("take the same batches"))));
}

RANKS_TEST(PipelineFailures, RefusesWhatIsNoPipeline, Ranks(1, 2)) {
  EXPECT_THAT([&] { Pipeline({}, squared_error, {}, world()); },
              ThrowsMessage<InvalidArgument>(HasSubstr("this rank has no stage")));
  PartNets mine({.stages = size(), .virtual_stages = 2}, rank());
  EXPECT_THAT(
      [&] { Pipeline(mine.stages(), squared_error, {.schedule = PipelineScheduleKind::GPIPE}, world()); },
      ThrowsMessage<InvalidArgument>(HasSubstr("gpipe has one model chunk on each rank, not 2")));
  EXPECT_THAT([&] { Pipeline(mine.stages(), squared_error, {.micro_batches = 0}, world()); },
              ThrowsMessage<InvalidArgument>(HasSubstr("micro_batches is 0")));
  const auto count = [](at::TensorList) { return 1.0; };
  EXPECT_THAT([&] { Pipeline(mine.stages(), squared_error, {.count = count}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("reduction must be SUM")));
  EXPECT_THAT([&] { Pipeline(mine.stages(), squared_error, {.replicas = world()}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("`replicas` without `count`")));
}

#define LOCKSTEP_KILLED_IN(PHASE, KIND, CHUNKS, MODE, VICTIM)                                         \
  RANKS_TEST(PipelineKill, InThe_##PHASE##_Of_##KIND##_##CHUNKS##_IsNamed, Ranks(3), Dies({VICTIM}),  \
             Backends("shm", "tcp")) {                                                                \
    const PipelineShape shape = {PipelineScheduleKind::KIND, size(), 3, CHUNKS, RecomputeMode::MODE}; \
    EXPECT_THAT([&] { troubled_step(world(), shape, Phase::PHASE, VICTIM, [] { die(); }); },          \
                ThrowsMessage<PeerLost>(HasSubstr("rank " #VICTIM)));                                 \
  }
LOCKSTEP_KILLED_IN(FORWARD, ONE_F_ONE_B, 1, NEVER, 1)
LOCKSTEP_KILLED_IN(FORWARD, ONE_F_ONE_B, 2, NEVER, 0)
LOCKSTEP_KILLED_IN(RECOMPUTE, GPIPE, 1, ALWAYS, 1)
LOCKSTEP_KILLED_IN(RECOMPUTE, ZB_V, 2, ALWAYS, 2)
LOCKSTEP_KILLED_IN(LOSS, GPIPE, 1, NEVER, 2)
LOCKSTEP_KILLED_IN(LOSS, ZB_V, 2, NEVER, 0)
LOCKSTEP_KILLED_IN(INPUT_GRADIENT, ONE_F_ONE_B, 2, NEVER, 1)
LOCKSTEP_KILLED_IN(INPUT_GRADIENT, ZB_H1, 1, NEVER, 1)
LOCKSTEP_KILLED_IN(WEIGHT_GRADIENT, ONE_F_ONE_B, 1, NEVER, 0)
LOCKSTEP_KILLED_IN(WEIGHT_GRADIENT, ZB_H1, 1, NEVER, 1)
LOCKSTEP_KILLED_IN(WEIGHT_GRADIENT, ZB_V, 2, NEVER, 2)
#undef LOCKSTEP_KILLED_IN

}  // namespace
}  // namespace lockstep::pipeline_failures_ranks_test

// Large values between stages over shared memory: that they are used where they lie, that nothing overwrites
// what anybody still refers to, and that gradients are those of one process.
#include "lockstep/parallel/pipeline/lent_values.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <stdexcept>

#include "lockstep/base/error.h"
#include "lockstep/parallel/pipeline/pipeline.h"
#include "lockstep/parallel/pipeline/pipeline_skip.h"
#include "lockstep/tensor/collectives.h"
#include "testing/pipeline_nets.h"
#include "testing/ranks.h"

namespace lockstep::lent_values_ranks_test {
namespace {

using namespace lockstep::testing;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr std::int64_t ROWS = 2048;  // of a micro-batch
constexpr double TOLERANCE = 1e-10;
static_assert(ROWS * PIPELINE_WIDTH * sizeof(double) >= LentValues::SMALLEST);

std::uintptr_t address_of(const void* memory) { return reinterpret_cast<std::uintptr_t>(memory); }

// The byte of that rank's segment at which the tensor begins; -1: it lies elsewhere.
std::int64_t offset_in(const ProcessGroup& group, int owner, const at::Tensor& tensor) {
  const auto segment = group.backend().memory_of(owner, 0, 0);
  if (segment == nullptr || address_of(tensor.const_data_ptr()) < address_of(segment.get())) return -1;
  const std::uint64_t offset = address_of(tensor.const_data_ptr()) - address_of(segment.get());
  try {
    static_cast<void>(group.backend().memory_of(owner, offset, tensor.nbytes()));
  } catch (const InternalError&) {
    return -1;  // behind the segment
  }
  return static_cast<std::int64_t>(offset);
}

// Runs a step in which every part looks at where its input and the gradient of its output lie.
void expect_places(const PipelineShape& shape, const ProcessGroup& group, std::int64_t rows, bool are_lent) {
  PartNets mine(shape, group.rank());
  const auto look = [&shape, &group, are_lent](const at::Tensor& tensor, int from_part) {
    const int from = shape.rank_of(from_part);
    EXPECT_EQ(offset_in(group, from, tensor) >= 0, are_lent && from != group.rank()) << to_text(shape);
  };
  std::vector<PipelineStage> stages;
  for (std::size_t k = 0; k < mine.nets.size(); ++k)
    stages.emplace_back([&, net = mine.nets[k], part = mine.parts[k]](const at::Tensor& x) mutable {
      if (part > 0) look(x, part - 1);
      const at::Tensor y = net->forward(x);
      if (y.requires_grad() && part + 1 < shape.parts())
        y.register_hook([&, part](const at::Tensor& gradient) { look(gradient, part + 1); });
      return y;
    });
  Pipeline pipeline(stages, squared_error, options_of(shape), group);
  pipeline.step(pipeline_rows(rows, 1), pipeline_rows(rows, 2));
}

RANKS_TEST(PipelineLent, LargeValuesAndGradientsAreUsedWhereTheyLie, Ranks(1, 2, 3, 4), Backends("shm")) {
  for (const PipelineShape& shape : runnable_shapes(size(), 3)) {
    expect_places(shape, world(), 3 * ROWS, /*are_lent=*/true);
    expect_places(shape, world(), 3, /*are_lent=*/false);
  }
}

RANKS_TEST(PipelineLent, NothingIsLentWithoutMemoryInCommon, Ranks(2, 3), Backends("tcp")) {
  for (const PipelineShape& shape : runnable_shapes(size(), 3))
    expect_places(shape, world(), 3 * ROWS, /*are_lent=*/false);
}

// Micro-batches of unequal rows, and batches of several forms.
RANKS_TEST(PipelineLent, GradientsAreThoseOfOneProcess, Ranks(1, 2, 3, 4)) {
  for (const auto mode : {RecomputeMode::NEVER, RecomputeMode::EXCEPT_LAST, RecomputeMode::ALWAYS})
    for (const PipelineShape& shape : runnable_shapes(size(), size() + 1, mode)) {
      PartNets mine(shape, rank());
      Whole whole(shape.parts());
      Pipeline pipeline(mine.stages(), squared_error, options_of(shape), world());
      for (const std::int64_t rows : {(size() + 1) * ROWS + 1, std::int64_t{7}, (size() + 1) * ROWS + 1}) {
        const at::Tensor x = pipeline_rows(rows, 7), y = pipeline_rows(rows, 8);
        mine.zero_grad();
        ASSERT_NEAR(pipeline.step(x, y).loss, whole.step(x, y), TOLERANCE) << to_text(shape);
        whole.expect_equal(mine, TOLERANCE, to_text(shape));
        EXPECT_NEAR(pipeline.eval(x, y).loss, squared_error(whole.forward(x), y).item<double>(), TOLERANCE);
      }
    }
}

at::Tensor filled(double value) { return at::full({ROWS, PIPELINE_WIDTH}, value, at::kDouble); }

// x w with w = 1, and the square of it as loss: the value of micro-batch i is i + 1 everywhere, its gradient
// is 2 (i + 1). Keeps every second of both.
struct Keeper {
  at::Tensor w = at::ones({}, at::kDouble).requires_grad_();
  std::vector<std::pair<double, at::Tensor>> kept;  // with the answer
  int forwards = 0;

  at::Tensor forward(const at::Tensor& x) {
    const double value = ++forwards;
    const at::Tensor y = x * w;
    if (forwards % 2 == 0) return y;
    kept.emplace_back(value, x.detach());
    if (y.requires_grad())
      y.register_hook([this, value](const at::Tensor& gradient) { kept.emplace_back(2 * value, gradient); });
    return y;
  }
  void expect_kept() const {
    for (const auto& [value, tensor] : kept) EXPECT_TRUE(tensor.equal(filled(value))) << value;
  }
};

at::Tensor sum_of_squares(const at::Tensor& output, const at::Tensor& /*target*/) {
  return output.square().sum();
}

// Over steps, behind the pipeline, and behind the group.
RANKS_TEST(PipelineLent, WhatAStageKeepsIsNotOverwritten, Ranks(1, 2, 3, 4), Backends("shm", "tcp")) {
  constexpr int M = 4, STEPS = 4;
  for (const auto kind :
       {PipelineScheduleKind::GPIPE, PipelineScheduleKind::ONE_F_ONE_B, PipelineScheduleKind::ZB_H1}) {
    Keeper keeper;
    {
      const PipelineStage stage = [&](const at::Tensor& x) { return keeper.forward(x); };
      Pipeline pipeline({stage}, sum_of_squares,
                        {.schedule = kind, .micro_batches = M, .reduction = LossReduction::SUM}, world());
      for (int step = 0; step < STEPS; ++step) {
        std::vector<at::Tensor> batch;
        for (int i = 0; i < M; ++i) batch.push_back(filled(step * M + i + 1));
        pipeline.step(at::cat(batch), at::cat(batch));
        keeper.expect_kept();
      }
    }
    EXPECT_GE(keeper.kept.size(), static_cast<std::size_t>(M * STEPS));
    keeper.expect_kept();
    // d/dw of the sum of (i + 1)^2 over all elements and micro-batches
    const double n = M * STEPS;
    EXPECT_NEAR(keeper.w.grad().item<double>() / (2 * ROWS * PIPELINE_WIDTH), n * (n + 1) * (2 * n + 1) / 6,
                1e-6);
    if (kind != PipelineScheduleKind::ZB_H1) continue;
    world().close();
    keeper.expect_kept();
  }
}

// Later values take the memory of those that are gone. What a step sends may lie beside what the receiver of
// the step before has not let go yet; a value that is never let go adds up over the steps.
RANKS_TEST(PipelineLent, MemoryIsWhatIsInFlight, Ranks(2, 3, 4), Backends("shm")) {
  constexpr int M = 6, STEPS = 30;
  for (const PipelineShape& shape : runnable_shapes(size(), M)) {
    PartNets mine(shape, rank());
    std::int64_t farthest = 0, first_step = 0;
    std::vector<PipelineStage> stages;
    for (std::size_t k = 0; k < mine.nets.size(); ++k)
      stages.emplace_back([&, net = mine.nets[k], part = mine.parts[k]](const at::Tensor& x) mutable {
        if (part > 0) farthest = std::max(farthest, offset_in(world(), shape.rank_of(part - 1), x));
        return net->forward(x);
      });
    Pipeline pipeline(stages, squared_error, options_of(shape), world());
    const at::Tensor x = pipeline_rows(M * ROWS, 1);
    for (int step = 0; step < STEPS; ++step) {
      pipeline.step(x, x);
      if (step == 0) first_step = farthest;
    }
    const int sent = 2 * M * shape.virtual_stages;  // values and gradients of a step
    ASSERT_LT(sent, STEPS);
    EXPECT_LE(farthest, first_step + sent * ROWS * PIPELINE_WIDTH * 8) << to_text(shape);
  }
}

// The sender fills one tensor again for every micro-batch, and the receiver changes its own.
RANKS_TEST(PipelineLent, EachSideMayWriteToItsOwnTensor, Ranks(2, 3, 4), Backends("shm")) {
  constexpr int M = 4;
  at::Tensor again = at::zeros({ROWS, PIPELINE_WIDTH}, at::kLong);
  const PipelineStage stage = [&](const at::Tensor& x) {
    if (rank() > 0) {
      at::Tensor mine = x;
      EXPECT_TRUE(mine.equal(at::full_like(x, mine[0][0].item<std::int64_t>())));
      mine.add_(10);
      EXPECT_TRUE(mine.resize_({ROWS + 1, PIPELINE_WIDTH}).slice(0, 0, ROWS).equal(mine[0].expand_as(again)));
      mine.resize_({ROWS, PIPELINE_WIDTH});
    }
    again.copy_(x);
    return rank() + 1 == size() ? again.clone() : again;
  };
  const auto nothing = [](const at::Tensor& output, const at::Tensor&) { return output.sum() * 0; };
  Pipeline pipeline({stage}, nothing, {.micro_batches = M}, world());
  for (int step = 0; step < 3; ++step) {
    const at::Tensor x =
        at::arange(M, at::kLong).repeat_interleave(ROWS).unsqueeze(1).repeat({1, PIPELINE_WIDTH});
    const PipelineResult result = pipeline.eval(x, x);
    EXPECT_TRUE(again.equal(at::full_like(again, M - 1 + 10 * rank())));
    if (!pipeline.is_last()) continue;
    EXPECT_TRUE(result.outputs[0].equal(x + 10 * (size() - 1)));
  }
}

// Large and small ones, integers, an undefined one and one without elements, and a skip tensor.
RANKS_TEST(PipelineLent, AnyValuesTravelTogether, Ranks(1, 2, 3, 4), Backends("shm", "tcp")) {
  using Tensors = std::vector<at::Tensor>;
  for (const PipelineShape& shape : runnable_shapes(size(), 3)) {
    std::vector<PipelineStage> stages;
    const at::Tensor w = at::ones({}, at::kDouble).requires_grad_();
    for (int chunk = 0; chunk < shape.virtual_stages; ++chunk)
      stages.emplace_back([&, part = shape.part_of(rank(), chunk)](const Tensors& in) -> Tensors {
        EXPECT_EQ(in.size(), 5);
        EXPECT_FALSE(in[2].defined());
        EXPECT_EQ(in[3].sizes(), at::IntArrayRef({in[0].size(0), 0}));
        if (part == 0) pipeline_stash("far", in[0].t().contiguous().t() * 3);
        const at::Tensor y = part + 1 == shape.parts() ? in[0] * w + pipeline_pop("far") : in[0] * w;
        return {y, in[1] + 1, in[2], in[3], in[4] + 1};
      });
    const auto loss = [&](const Tensors& out, const Tensors& target) {
      EXPECT_TRUE(out[1].equal(target[0] + shape.parts()));
      EXPECT_TRUE(out[4].equal(target[1] + shape.parts()));
      return out[0].sum();
    };
    const std::int64_t rows = 3 * ROWS + 2;
    const at::Tensor large = at::arange(rows).unsqueeze(1).repeat({1, 8}),
                     small = at::arange(rows).remainder(5);
    const at::Tensor x = pipeline_rows(rows, 1);
    PipelineOptions options = options_of(shape);
    options.reduction = LossReduction::SUM;
    Pipeline pipeline(stages, loss, options, world());
    for (int step = 0; step < 2; ++step) {
      const double sum = x.sum().item<double>();
      const double now =
          pipeline.step({x, large, at::Tensor(), at::zeros({rows, 0}), small}, {large, small}).loss;
      EXPECT_NEAR(now, 4 * sum, 1e-8) << to_text(shape);
      EXPECT_NEAR(w.grad().item<double>(), shape.virtual_stages * (step + 1) * sum, 1e-8) << to_text(shape);
    }
  }
}

RANKS_TEST(PipelineLent, TwoPipelinesTakeTurns, Ranks(2, 3)) {
  const PipelineShape shape{.stages = size(), .micro_batches = 3};
  PartNets one(shape, rank()), other(shape, rank());
  Whole whole(shape.parts());
  Pipeline first(one.stages(), squared_error, options_of(shape), world());
  Pipeline second(other.stages(), squared_error, options_of(shape), world());
  for (std::uint64_t step = 0; step < 3; ++step) {
    const at::Tensor x = pipeline_rows(3 * ROWS, step), y = pipeline_rows(3 * ROWS, step + 9);
    one.zero_grad();
    other.zero_grad();
    EXPECT_NEAR(first.step(x, y).loss, whole.step(x, y), TOLERANCE);
    whole.expect_equal(one, TOLERANCE, "the first");
    EXPECT_NEAR(second.step(y, x).loss, whole.step(y, x), TOLERANCE);
    whole.expect_equal(other, TOLERANCE, "the second");
  }
}

// Its rank sends zeros for the rest of the step. A failure in the first step comes before specs are agreed.
RANKS_TEST(PipelineLent, AStageThatThrowsKeepsNobodyWaiting, Ranks(2, 3, 4)) {
  for (const PipelineShape& shape : runnable_shapes(size(), 3)) {
    PartNets mine(shape, rank());
    Whole whole(shape.parts());
    int forwards = 0, bad_forward = 0;
    std::vector<PipelineStage> stages;
    for (std::size_t k = 0; k < mine.nets.size(); ++k)
      stages.emplace_back([&, net = mine.nets[k], part = mine.parts[k],
                           middle = shape.parts() / 2](const at::Tensor& x) mutable {
        if (part == middle && ++forwards == bad_forward) throw std::runtime_error("the layer burnt out");
        return net->forward(x);
      });
    Pipeline pipeline(stages, squared_error, options_of(shape), world());
    const at::Tensor x = pipeline_rows(3 * ROWS, 1), y = pipeline_rows(3 * ROWS, 2);
    for (const int bad : {1, 0, 2, 3, 0}) {
      forwards = 0;
      bad_forward = bad;
      mine.zero_grad();
      if (bad > 0) {
        EXPECT_THAT([&] { pipeline.step(x, y); },
                    ThrowsMessage<std::runtime_error>(HasSubstr("the layer burnt out")));
      } else {
        EXPECT_NEAR(pipeline.step(x, y).loss, whole.step(x, y), TOLERANCE) << to_text(shape);
        whole.expect_equal(mine, TOLERANCE, to_text(shape));
      }
    }
  }
}

// In the second step, while values of the dead rank are held.
void die_in_second_step(const ProcessGroup& group, int bad, const std::function<void()>& die) {
  Keeper keeper;
  const PipelineStage stage = [&](const at::Tensor& x) {
    if (group.rank() == bad && keeper.forwards == 5) die();
    return keeper.forward(x);
  };
  Pipeline pipeline({stage}, sum_of_squares, {.micro_batches = 4, .reduction = LossReduction::SUM}, group);
  const auto step = [&](int number) {
    std::vector<at::Tensor> batch;
    for (int i = 0; i < 4; ++i) batch.push_back(filled(4 * number + i + 1));
    pipeline.step(at::cat(batch), at::cat(batch));
  };
  step(0);
  EXPECT_THAT([&] { step(1); }, ThrowsMessage<PeerLost>(HasSubstr("rank " + std::to_string(bad))));
  keeper.expect_kept();
}

RANKS_TEST(PipelineLentKill, OfTheFirstStageIsNamed, Ranks(2, 3, 4), Dies({0}), Backends("shm")) {
  die_in_second_step(world(), 0, [] { die(); });
}
RANKS_TEST(PipelineLentKill, OfALaterStageIsNamed, Ranks(2, 3, 4), Dies({1}), Backends("shm")) {
  die_in_second_step(world(), 1, [] { die(); });
}

// A value whose elements are not in order arrives in order, and outlives its lender's group.
RANKS_TEST(LentValues, ArriveInOrderAndOutliveTheGroup, Ranks(2, 3, 4), Backends("shm", "thread")) {
  const LentValues lent(world());
  const at::Tensor value = random_values({300, 70}, 1), place = at::zeros({1}, at::kLong);
  ASSERT_TRUE(lent.carries(value.nbytes()));
  EXPECT_FALSE(lent.carries(LentValues::SMALLEST - 1));
  const int next = (rank() + 1) % size(), before = (rank() + size() - 1) % size();
  Work sent = isend(lent.lend(value.t() + rank()), GroupRank{next}, world());
  recv(place, GroupRank{before}, world());
  sent.wait();
  const at::Tensor answer = value.t() + before;
  const at::Tensor held = lent.hold(place, specs_of({{"", answer}}).front(), before);
  EXPECT_GE(offset_in(world(), before, held), 0);
  EXPECT_TRUE(held.is_contiguous());
  EXPECT_TRUE(held.equal(answer));
  for (int i = 0; i < 3; ++i) {  // what others make now lies elsewhere
    const auto other = world().allocate_shared(value.nbytes());
    std::memset(other.get(), 1, value.nbytes());
  }
  world().close();
  EXPECT_TRUE(held.equal(answer));
}

}  // namespace
}  // namespace lockstep::lent_values_ranks_test

// What ShardedDataParallel refuses, each in a sentence that names it, and what a failure leaves.
#include <gmock/gmock.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/types.h>

#include <optional>
#include <stdexcept>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/checkpoint_state.h"
#include "lockstep/comm/collectives/barrier.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/lr_scheduler.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/parallel/ddp/distributed_data_parallel.h"
#include "lockstep/parallel/zero/sharded_data_parallel.h"
#include "testing/ranks.h"
#include "testing/tensors.h"

namespace lockstep {
namespace sharded_mistakes_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr int WIDTH = 300;  // a weight of more than one chunk

std::shared_ptr<torch::nn::LinearImpl> make_layer() {
  torch::manual_seed(1);
  return std::make_shared<torch::nn::LinearImpl>(WIDTH, WIDTH);
}

void run_backward(ShardedDataParallel<torch::nn::LinearImpl>& model) {
  model.forward(torch::ones({2, WIDTH})).sum().backward();
}

RANKS_TEST(ShardedMistakes, AWriteOfEveryRankIsRefused, Ranks(2, 3)) {
  auto net = make_layer();
  ShardedDataParallel model(net);
  {
    const at::NoGradGuard no_grad;
    comm::barrier(world());
    net->weight.mul_(1);
  }
  EXPECT_THAT(
      [&] {
        model.forward(torch::ones({2, WIDTH}));
      },
      ThrowsMessage<InvalidArgument>(
          AllOf(HasSubstr("parameter \"weight\" was written to in place"), HasSubstr("write_parameters()"))));
  model.write_parameters([] {});
  model.forward(torch::ones({2, WIDTH}));
}

RANKS_TEST(ShardedMistakes, AReplacedMemoryIsNamed, Ranks(1, 2)) {
  auto net = make_layer();
  ShardedDataParallel model(net);
  const at::Tensor bias = net->bias;
  bias.set_data(torch::zeros({WIDTH}));
  EXPECT_THAT(
      [&] {
        model.forward(torch::ones({2, WIDTH}));
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("parameter \"bias\" has left the memory")));
}

RANKS_TEST(ShardedMistakes, AGraphFromBeforeAStepCannotRunBackward, Ranks(1, 2)) {
  torch::nn::Sequential net(torch::nn::Linear(WIDTH, WIDTH), torch::nn::Linear(WIDTH, 3));
  ShardedDataParallel model(net);
  auto optimizer = model.optimizer<optim::SGD>(optim::SGDOptions(0.1));
  const at::Tensor x = torch::ones({2, WIDTH}).requires_grad_(true);
  const at::Tensor kept = model.forward(x).sum();
  model.forward(x).sum().backward();
  optimizer.step();
  EXPECT_THAT([&] { kept.backward(); },
              ThrowsMessage<c10::Error>(HasSubstr("modified by an inplace operation")));
  model.zero_grad();
}

RANKS_TEST(ShardedMistakes, ABackwardAfterAveragingIsRefused, Ranks(1, 2)) {
  ShardedDataParallel model(make_layer());
  auto optimizer = model.optimizer<optim::SGD>(optim::SGDOptions(0.1));
  run_backward(model);
  model.clip_grad_norm_(1.0);
  EXPECT_THAT([&] { run_backward(model); },
              ThrowsMessage<InvalidArgument>(HasSubstr("backward() after clip_grad_norm_() or unscale_()")));
  model.zero_grad();
  run_backward(model);
  optimizer.step();
}

RANKS_TEST(ShardedMistakes, RanksThatCallDifferentThingsAreTold, Ranks(2, 3)) {
  ShardedDataParallel model(make_layer());
  auto optimizer = model.optimizer<optim::SGD>(optim::SGDOptions(0.1));
  run_backward(model);
  const auto call = [&] {
    if (rank() == 0) {
      model.clip_grad_norm_(1.0);
    } else {
      optimizer.step();
    }
  };
  EXPECT_THAT(call, ThrowsMessage<Mismatch>(HasSubstr("for the step of a ShardedDataParallel")));
  EXPECT_FALSE(model.is_torn());
}

RANKS_TEST(ShardedMistakes, OfConstructionAreNamed, Ranks(1, 2)) {
  auto net = make_layer();
  ShardedDataParallel model(net);
  EXPECT_THAT([&] { ShardedDataParallel again(net); },
              ThrowsMessage<InvalidArgument>(HasSubstr("another live wrapper has parameter \"weight\"")));
  auto complex = std::make_shared<torch::nn::SequentialImpl>();
  complex->register_parameter("c", torch::zeros({3}, at::kComplexFloat));
  EXPECT_THAT([&] { ShardedDataParallel wrapper(complex); },
              ThrowsMessage<InvalidArgument>(
                  HasSubstr("parameter \"c\" is ComplexFloat; what is trained is float32")));
  auto optimizer = model.optimizer<optim::SGD>(optim::SGDOptions(0.1));
  EXPECT_THAT([&] { auto second = model.optimizer<optim::SGD>(optim::SGDOptions(0.1)); },
              ThrowsMessage<InvalidArgument>(HasSubstr("optimizer() was called before")));
}

RANKS_TEST(ShardedMistakes, AForeignTensorInAGroupIsRefused, Ranks(1)) {
  ShardedDataParallel model(make_layer());
  const at::Tensor foreign = torch::zeros({3});
  EXPECT_THAT(
      [&] {
        auto optimizer =
            model.optimizer<optim::SGD>({{{foreign}, optim::SGDOptions(0.2)}}, optim::SGDOptions(0.1));
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("1 tensors that are not trained parameters")));
}

RANKS_TEST(ShardedMistakes, AnOptimiserWithoutNamesIsNotSaved, Ranks(1)) {
  ShardedDataParallel model(make_layer());
  auto optimizer = model.optimizer<torch::optim::Adam>(torch::optim::AdamOptions(0.1));
  CheckpointState state;
  EXPECT_THAT([&] { state.add("optimizer", optimizer); },
              ThrowsMessage<InvalidArgument>(HasSubstr("use the optimiser of that name in lockstep::optim")));
}

// Steps, or throws where it is told to.
struct BreakableSGD : optim::SGD {
  using optim::SGD::SGD;
  at::Tensor step(LossClosure closure = nullptr) override {
    if (breaks) throw std::runtime_error("on purpose");
    return optim::SGD::step(std::move(closure));
  }
  static inline bool breaks = false;
};

RANKS_TEST(ShardedMistakes, AFailureBeforeAStepLeavesTheParametersWhole, Ranks(2, 3, 4),
           Backends("shm", "tcp", "hierarchical")) {
  auto net = make_layer();
  ShardedDataParallel model(net);
  auto optimizer = model.optimizer<optim::SGD>(optim::SGDOptions(0.1));
  run_backward(model);
  const at::Tensor before = net->weight.detach().clone();
  // Behind the barrier every rank has its model. The failure may still meet another rank in it.
  if (rank() == size() - 1) {
    comm::barrier(world()).wait();
    world().abort("on purpose");
  } else {
    EXPECT_THAT(
        [&] {
          comm::barrier(world()).wait();
          optimizer.step();
        },
        ThrowsMessage<Aborted>(HasSubstr("on purpose")));
  }
  EXPECT_FALSE(model.is_torn());
  EXPECT_TRUE(net->weight.equal(before));
}

RANKS_TEST(ShardedMistakes, AFailureWithinAStepIsATornStep, Ranks(2, 3, 4),
           Backends("shm", "tcp", "hierarchical")) {
  ShardedDataParallel model(make_layer());
  auto optimizer = model.optimizer<BreakableSGD>(optim::SGDOptions(0.1));
  run_backward(model);
  BreakableSGD::breaks = rank() == size() - 1;
  if (BreakableSGD::breaks) {
    EXPECT_THAT([&] { optimizer.step(); }, ThrowsMessage<std::runtime_error>(HasSubstr("on purpose")));
  } else {
    EXPECT_THAT([&] { optimizer.step(); }, ThrowsMessage<Aborted>(HasSubstr("on purpose")));
  }
  // Another copy than that of the rank that breaks is whole where no rank got to write to it.
  const bool is_other_machine = backend_name() == "hierarchical" && rank() < 2;
  if ((!model.memory().is_shared || is_other_machine) && !BreakableSGD::breaks) return;
  BreakableSGD::breaks = false;
  EXPECT_TRUE(model.is_torn());
  EXPECT_THAT(
      [&] {
        model.forward(torch::ones({2, WIDTH}));
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("step 1 is torn")));
  EXPECT_THAT([&] { optimizer.step(); }, ThrowsMessage<InvalidArgument>(HasSubstr("step 1 is torn")));
}

// Rank 0 has written a part then. Another copy than rank 0's may be whole.
RANKS_TEST(ShardedMistakes, AWriteThatFailsLeavesTornParameters, Ranks(1, 2, 3, 4),
           Backends("shm", "tcp", "hierarchical")) {
  auto net = make_layer();
  ShardedDataParallel model(net);
  const auto write = [&] {
    model.write_parameters([&] {
      net->weight[0].fill_(5);
      throw std::runtime_error("on purpose");
    });
  };
  if (rank() == 0) {
    EXPECT_THAT(write, ThrowsMessage<std::runtime_error>(HasSubstr("on purpose")));
  } else {
    EXPECT_THAT(write, ThrowsMessage<Aborted>(HasSubstr("on purpose")));
  }
  const bool is_other_machine = backend_name() == "hierarchical" && rank() > 1;
  if (rank() > 0 && (is_other_machine || !model.memory().is_shared)) return;
  EXPECT_TRUE(model.is_torn());
  EXPECT_THAT(
      [&] {
        model.forward(torch::ones({2, WIDTH}));
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("write_parameters() after step 0 is torn")));
}

// The dead rank may be missed while others are still within the barrier.
RANKS_TEST(ShardedMistakes, AWriteThatNoRankBeganLeavesThemWhole, Ranks(2, 3, 4), Dies({1}),
           Backends("shm", "tcp", "hierarchical")) {
  auto net = make_layer();
  ShardedDataParallel model(net);
  bool is_written = false;
  const auto meet_and_write = [&] {
    comm::barrier(world()).wait();
    if (rank() == 1) die();
    model.write_parameters([&] { is_written = true; });
  };
  EXPECT_THROW(meet_and_write(), PeerLost);
  EXPECT_FALSE(is_written);
  EXPECT_FALSE(model.is_torn());
}

RANKS_TEST(ShardedMistakes, ASchedulerSetsTheRateOfAllParts, Ranks(1, 2)) {
  auto net = make_layer();
  ShardedDataParallel model(net);
  auto optimizer = model.optimizer<optim::SGD>(optim::SGDOptions(1.0));
  optim::StepLR scheduler(optimizer, /*step_size=*/1, /*gamma=*/0.5);
  at::Tensor expected = net->weight.detach().clone();
  for (const double rate : {1.0, 0.5, 0.25}) {
    (net->weight * 2.0).sum().backward();
    optimizer.step();
    scheduler.step();
    expected = expected - 2.0 * rate;
    EXPECT_TRUE(at::allclose(net->weight, expected)) << rate;
  }
}

struct WithTableImpl : torch::nn::Module {
  at::Tensor w = register_parameter("w", torch::ones({2}));
  at::Tensor table =
      register_buffer("table", torch::quantize_per_tensor(torch::ones({3}), 0.1, 0, torch::kQInt8));
};
TORCH_MODULE(WithTable);

RANKS_TEST(ShardedMistakes, AQuantisedBufferIsRefusedByNameOnAllRanks, Ranks(1, 2)) {
  WithTable net;
  EXPECT_THAT([&] { ShardedDataParallel<WithTableImpl> model(net); },
              ThrowsMessage<InvalidArgument>(HasSubstr("\"table\" is quantised")));
}

enum class Break { IN_FORWARD, AFTER_FORWARD, IN_BACKWARD };

// One step, which `breaks` ends with an exception that the loop catches.
template <typename Optimizer>
void step_or_skip(ShardedDataParallel<torch::nn::LinearImpl>& model, Optimizer& optimizer,
                  std::optional<Break> breaks) {
  try {
    if (breaks == Break::IN_FORWARD) model.forward(torch::ones({2, WIDTH + 1}));  // no such size
    const at::Tensor x = torch::ones({2, WIDTH}).requires_grad_(true);
    if (breaks == Break::IN_BACKWARD)
      x.register_hook([](const at::Tensor&) { throw std::runtime_error("on purpose"); });
    const at::Tensor loss = model.forward(x).sum();
    if (breaks == Break::AFTER_FORWARD) throw std::runtime_error("a bad sample");
    loss.backward();
    optimizer.step();
  } catch (const Error&) {
    throw;
  } catch (const std::exception&) {
  }
}

// The rank that went on alone would step with the gradients of another batch than the others.
void expect_a_skip_is_named(int stage, Break breaks, bool by_clipping) {
  auto net = make_layer();
  ShardedDataParallel model(net, {.stage = stage});
  auto optimizer = model.optimizer<optim::SGD>(optim::SGDOptions(0.1));
  step_or_skip(model, optimizer, std::nullopt);
  const bool skips = world().rank() == world().size() - 1;
  if (skips) step_or_skip(model, optimizer, breaks);
  at::Tensor before;
  if (stage < 3) before = net->weight.detach().clone();
  const auto next = [&] {
    run_backward(model);
    by_clipping ? static_cast<void>(model.clip_grad_norm_(1.0)) : static_cast<void>(optimizer.step());
  };
  EXPECT_THAT(next,
              ThrowsMessage<Mismatch>(AllOf(HasSubstr("ShardedDataParallel on group \"world\", rank "),
                                            HasSubstr(skips ? "1 forwards behind on this rank, 0 on rank 0"
                                                            : "0 forwards behind on this rank, 1 on rank "),
                                            HasSubstr("skip the step on all ranks"))))
      << "stage " << stage;
  if (stage < 3) EXPECT_TRUE(net->weight.equal(before));
  EXPECT_FALSE(model.is_torn());
}

RANKS_TEST(ShardedMistakes, AStepThatOneRankSkippedIsNamed, Ranks(2, 3),
           Backends("shm", "tcp", "hierarchical")) {
  for (const auto breaks : {Break::IN_FORWARD, Break::AFTER_FORWARD, Break::IN_BACKWARD})
    for (const bool by_clipping : {false, true}) expect_a_skip_is_named(/*stage=*/1, breaks, by_clipping);
}

RANKS_TEST(ShardedMistakes, AStepThatOneRankSkippedIsNamedInStages2And3, Ranks(2, 3),
           Backends("shm", "tcp")) {
  expect_a_skip_is_named(/*stage=*/2, Break::AFTER_FORWARD, /*by_clipping=*/false);
  expect_a_skip_is_named(/*stage=*/2, Break::AFTER_FORWARD, /*by_clipping=*/true);
  if (backend_name() == "shm") expect_a_skip_is_named(/*stage=*/3, Break::AFTER_FORWARD, false);
}

// All ranks skip the same step; one forward of a rank is tried again; another rank only looks at a result.
RANKS_TEST(ShardedMistakes, SkipsThatAreLegalAreNotRefused, Ranks(1, 2, 3), Backends("shm", "tcp")) {
  auto net = make_layer();
  ShardedDataParallel model(net);
  auto optimizer = model.optimizer<optim::SGD>(optim::SGDOptions(0.1));
  const at::Tensor first = net->weight.detach().clone();
  for (const auto breaks : {Break::IN_FORWARD, Break::AFTER_FORWARD, Break::IN_BACKWARD})
    step_or_skip(model, optimizer, breaks);
  if (rank() == 0) EXPECT_ANY_THROW(model.module()->forward(torch::ones({2, WIDTH + 1})));
  if (rank() == 0) model.forward(torch::ones({2, WIDTH}));
  model.zero_grad();
  step_or_skip(model, optimizer, std::nullopt);
  EXPECT_TRUE(at::allclose(net->weight, first - 0.1 * 2));  // two rows of ones
}

}  // namespace
}  // namespace sharded_mistakes_test
}  // namespace lockstep

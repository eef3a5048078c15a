// Stage 3 of ShardedDataParallel: ranks that do not read the same parameters, and ranks that die in a gather.
#include <gmock/gmock.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>
#include <unistd.h>

#include <csignal>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/comm/collectives/barrier.h"
#include "lockstep/comm/collectives/objects.h"
#include "lockstep/job/groups.h"
#include "lockstep/job/job.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/parallel/zero/sharded_data_parallel.h"
#include "lockstep/tensor/point_to_point.h"
#include "testing/ranks.h"

namespace lockstep {
namespace gather_failures {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr int WIDTH = 100;

// Each layer's weight and bias are a unit.
ShardedDataParallelOptions stage_3() {
  return {.stage = 3, .bucket_cap_mb = 0.02, .unit_mb = 0.0385, .param_persistence_threshold = 0};
}

torch::nn::Sequential layers(int count) {
  torch::manual_seed(1);
  torch::nn::Sequential net;
  for (int i = 0; i < count; ++i) net->push_back(torch::nn::Linear(WIDTH, WIDTH));
  return net;
}

using Model = ShardedDataParallel<torch::nn::SequentialImpl>;

// Backward reads the first layer, too.
template <typename Optimizer = optim::SGD> void train(Model& model, int steps) {
  auto optimizer = model.optimizer<Optimizer>(optim::SGDOptions(0.01));
  for (int step = 0; step < steps; ++step) {
    model.forward(at::ones({2, WIDTH}).requires_grad_(true)).square().mean().backward();
    optimizer.step();
  }
}

// A rank that is told early may still be about to leave the constructor.
void expect_to_be_told_of_other_units(bool is_other) {
  const auto read_and_run = [&] {
    auto net = layers(3);
    Model model(net, stage_3());
    const at::Tensor weight = net[is_other ? 2 : 0]->as<torch::nn::Linear>()->weight;
    EXPECT_TRUE(weight.detach().sum().isnan().item<bool>());  // an operator of libtorch cannot throw it
    try {
      model.forward(at::ones({2, WIDTH}));
    } catch (...) {
      EXPECT_FALSE(model.is_torn());
      throw;
    }
  };
  EXPECT_THAT(read_and_run,
              ThrowsMessage<Mismatch>(AllOf(HasSubstr("to gather unit 0 of its parameters"),
                                            HasSubstr("to gather unit 2 of its parameters"),
                                            HasSubstr("read the same parameters in the same order"))));
}

RANKS_TEST(ShardedGatherFailures, RanksThatReadDifferentUnitsAreTold, Ranks(2, 4),
           Backends("tcp", "hierarchical")) {
  expect_to_be_told_of_other_units(rank() == 0);
}
// All of a lane read the same, so what they gather comes. Those of a machine do not.
RANKS_TEST(ShardedGatherFailures, RanksOfAMachineThatReadDifferentUnitsAreTold, Ranks(4),
           Backends("hierarchical")) {
  expect_to_be_told_of_other_units(rank() % 2 == 0);
}

// The others do something else meanwhile.
RANKS_TEST(ShardedGatherFailures, AnEvaluationOnOneRankIsAnError, Ranks(2, 4),
           Backends("tcp", "hierarchical")) {
  const auto evaluate_on_one = [&] {
    Model model(layers(3), stage_3());
    const at::NoGradGuard no_grad;
    if (rank() == 0) model.forward(at::ones({2, WIDTH}));
    comm::barrier(world()).wait();
  };
  EXPECT_THAT(evaluate_on_one,
              ThrowsMessage<Mismatch>(AllOf(HasSubstr("barrier"), HasSubstr("to gather unit 0"),
                                            HasSubstr("one rank alone read parameters"))));
}

// It has nothing to do any more, and is not there for what the other one still evaluates.
RANKS_TEST(ShardedGatherFailures, ARankThatHasLeftIsNamed, Ranks(2), Backends("tcp")) {
  Model model(layers(3), stage_3());
  if (rank() == 1) {
    train(model, 1);
    return destroy_process_group();
  }
  const auto train_and_evaluate = [&] {
    train(model, 1);
    const at::NoGradGuard no_grad;
    model.forward(at::ones({2, WIDTH}));
  };
  EXPECT_THAT(train_and_evaluate, ThrowsMessage<PeerLost>(HasSubstr("rank 1")));
}

// Nothing is on its way behind an evaluation, so a rank that leaves owes nothing to slower ones.
RANKS_TEST(ShardedGatherFailures, ARankMayLeaveBehindItsLastForward, Ranks(2, 3, 4),
           Backends("tcp", "hierarchical")) {
  for (const std::size_t live : {2, 9}) {
    auto options = stage_3();
    options.max_live_parameters = live * (WIDTH * WIDTH + WIDTH);
    options.prefetch_bucket_size = options.max_live_parameters;
    Model model(layers(6), options);
    train(model, 2);
    const at::NoGradGuard no_grad;
    EXPECT_FALSE(model.forward(at::ones({2, WIDTH})).isnan().any().item<bool>());
  }
  destroy_process_group();
}

// A step further on the other ranks wait for what this rank has not read.
RANKS_TEST(ShardedGatherFailures, AForwardThatThrowsOnOneRankIsAnError, Ranks(2, 4),
           Backends("tcp", "hierarchical")) {
  Model model(layers(4), stage_3());
  auto optimizer = model.optimizer<optim::SGD>(optim::SGDOptions(0.01));
  const auto run = [&] {
    for (int step = 0; step < 2; ++step) {
      try {
        const bool breaks = rank() == 1 && step == 1;
        model.forward(at::ones({2, breaks ? WIDTH + 1 : WIDTH})).square().mean().backward();
      } catch (const c10::Error&) {  // this rank leaves the batch out
      }
      optimizer.step();
    }
  };
  EXPECT_THAT(run, ThrowsMessage<Mismatch>(HasSubstr("for the step of a ShardedDataParallel")));
  EXPECT_FALSE(model.is_torn());
}

// What the model makes of NaN is not what went wrong.
struct Careful : torch::nn::Module {
  Careful() { layer = register_module("layer", torch::nn::Linear(WIDTH, WIDTH)); }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = layer(x);
    if (y.isnan().any().item<bool>()) throw std::runtime_error("the model is not finite");
    return y;
  }
  torch::nn::Linear layer{nullptr};
};

RANKS_TEST(ShardedGatherFailures, ForwardThrowsTheReason, Ranks(2), Backends("tcp")) {
  ShardedDataParallel model(std::make_shared<Careful>(), stage_3());
  if (rank() == 1) {
    EXPECT_THROW(comm::barrier(world()).wait(), Mismatch);
  } else {
    EXPECT_THAT([&] { model.forward(at::ones({2, WIDTH})); }, ThrowsMessage<Mismatch>(HasSubstr("barrier")));
  }
}

// The first step gathers the 4 layers, of which 3 stay, and the first one again in backward.
RANKS_TEST(ShardedGatherFailures, SurvivorsOfAGatherAreToldWhoDied, Ranks(2, 4), Dies({1}),
           Backends("tcp", "hierarchical"), Variable("LOCKSTEP_FAIL_POINT", "zero.gather@1+2=kill")) {
  Model model(layers(4), stage_3());
  EXPECT_THAT([&] { train(model, 3); }, ThrowsMessage<PeerLost>(HasSubstr("rank 1")));
  EXPECT_FALSE(model.is_torn());
}

RANKS_TEST(ShardedGatherFailures, SurvivorsOfAGatherInBackwardAreToldWhoDied, Ranks(2, 4), Dies({1}),
           Backends("tcp", "hierarchical"), Variable("LOCKSTEP_FAIL_POINT", "zero.gather@1+4=kill")) {
  Model model(layers(4), stage_3());
  EXPECT_THAT([&] { train(model, 3); }, ThrowsMessage<PeerLost>(HasSubstr("rank 1")));
  EXPECT_FALSE(model.is_torn());
}

// The first step records the order, so this is in the second one.
RANKS_TEST(ShardedGatherFailures, SurvivorsOfAPrefetchAreToldWhoDied, Ranks(2, 4), Dies({1}),
           Backends("tcp", "hierarchical"), Variable("LOCKSTEP_FAIL_POINT", "zero.prefetch@1+1=kill")) {
  Model model(layers(4), stage_3());
  EXPECT_THAT([&] { train(model, 3); }, ThrowsMessage<PeerLost>(HasSubstr("rank 1")));
  EXPECT_FALSE(model.is_torn());
}

// In the second step rank 1 goes on when the others have said that they are within theirs. A rank that hears
// of a death while it still meets has not begun, and its step is not torn.
struct LastSGD : optim::SGD {
  using optim::SGD::SGD;
  at::Tensor step(LossClosure closure = nullptr) override {
    if (++steps == 2) meet();
    return optim::SGD::step(std::move(closure));
  }
  void meet() const {
    const at::Tensor word = at::zeros({1});
    if (signals->rank() != 1) return send(word, GroupRank{1}, *signals);
    for (int other = 0; other < signals->size(); ++other)
      if (other != 1) recv(word, GroupRank{other}, *signals);
  }
  int steps = 0;
  static inline std::optional<ProcessGroup> signals;
};

// The biases stay, and are gathered when all have stepped.
RANKS_TEST(ShardedGatherFailures, ADeathInTheStepIsATornStep, Ranks(2, 4), Dies({1}),
           Backends("tcp", "hierarchical"), Variable("LOCKSTEP_FAIL_POINT", "zero.before_end@1+1=kill")) {
  LastSGD::signals = new_group();
  auto options = stage_3();
  options.param_persistence_threshold = WIDTH;
  Model model(layers(3), options);
  EXPECT_THAT([&] { train<LastSGD>(model, 3); }, ThrowsMessage<PeerLost>(HasSubstr("rank 1")));
  LastSGD::signals.reset();
  EXPECT_TRUE(model.is_torn());
  EXPECT_THAT(
      [&] {
        model.forward(at::ones({2, WIDTH}));
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("step 2 is torn")));
}

// The same program does not get there: nothing is ahead of its use.
RANKS_TEST(ShardedGatherFailures, NothingIsPrefetchedWithoutABucket, Ranks(2), Backends("tcp"),
           Variable("LOCKSTEP_FAIL_POINT", "zero.prefetch@1=kill")) {
  auto options = stage_3();
  options.prefetch_bucket_size = 0;
  Model model(layers(4), options);
  train(model, 3);
}

// Four gathers a step, so there is no ninth one in two steps.
RANKS_TEST(ShardedGatherFailures, WithRoomForTheModelEachUnitIsGatheredOnceAStep, Ranks(2), Backends("tcp"),
           Variable("LOCKSTEP_FAIL_POINT", "zero.gather@1+8=kill")) {
  auto options = stage_3();
  options.max_live_parameters = 4 * (WIDTH * WIDTH + WIDTH);
  Model model(layers(4), options);
  train(model, 2);
}

// With room for three units the first one is gathered again in each backward: the ninth gather is in step
// two.
RANKS_TEST(ShardedGatherFailures, WithLessRoomThereAreMoreGathers, Ranks(2), Dies({1}), Backends("tcp"),
           Variable("LOCKSTEP_FAIL_POINT", "zero.gather@1+8=kill")) {
  Model model(layers(4), stage_3());
  EXPECT_THAT([&] { train(model, 2); }, ThrowsMessage<PeerLost>(HasSubstr("rank 1")));
}

// It stands still in the middle of a gather, and the other rank waits up to its timeout.
RANKS_TEST(ShardedGatherFailures, ARankThatStandsStillIsNamed, Ranks(2, 4), Dies({1}),
           Backends("tcp", "hierarchical"), Variable("LOCKSTEP_FAIL_POINT", "zero.gather@1+2=stop"),
           Variable("LOCKSTEP_TIMEOUT", "1")) {
  nlohmann::json process = getpid();
  comm::broadcast_object(world(), process, GroupRank{1});
  Model model(layers(4), stage_3());
  EXPECT_THAT([&] { train(model, 3); }, ThrowsMessage<Timeout>(HasSubstr("rank 1")));
  EXPECT_FALSE(model.is_torn());
  if (rank() == 0) kill(process.get<pid_t>(), SIGKILL);  // on machines, the last one to know
}

// Every rank would write to what it has gathered, which is let go.
RANKS_TEST(ShardedGatherFailures, WritesOfEveryRankAreRefused, Ranks(1, 2), Backends("tcp")) {
  auto net = layers(2);
  Model model(net, stage_3());
  const at::Tensor weight = net[0]->as<torch::nn::Linear>()->weight;
  {
    const at::NoGradGuard no_grad;
    weight.mul_(2);
  }
  if (size() > 1) {
    EXPECT_THAT(
        [&] {
          model.forward(at::ones({2, WIDTH}));
        },
        ThrowsMessage<InvalidArgument>(HasSubstr("parameter \"0.weight\" was written to in place")));
  }
  weight.set_data(at::ones({WIDTH, WIDTH}));
  EXPECT_THAT(
      [&] {
        model.forward(at::ones({2, WIDTH}));
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("parameter \"0.weight\" has left the memory")));
}

// Each rank says which option it has.
RANKS_TEST(ShardedGatherFailures, OptionsOfRanksMustBeTheSame, Ranks(2), Backends("tcp")) {
  auto options = stage_3();
  options.max_live_parameters = 1000 + static_cast<std::size_t>(rank());
  EXPECT_THAT([&] { const Model model(layers(2), options); },
              ThrowsMessage<Error>(
                  AllOf(HasSubstr("max_live_parameters 1000"), HasSubstr("max_live_parameters 1001"))));
}

}  // namespace
}  // namespace gather_failures
}  // namespace lockstep

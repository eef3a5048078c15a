// What stage 2 of ShardedDataParallel refuses, backwards inside a backward, and what a failure in backward
// leaves.
#include <gmock/gmock.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <stdexcept>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/comm/collectives/barrier.h"
#include "lockstep/job/job.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/parallel/zero/sharded_data_parallel.h"
#include "testing/ranks.h"
#include "testing/tensors.h"

namespace lockstep {
namespace stage_mistakes {
namespace {

using ::testing::HasSubstr;
using testing::random_values;
using ::testing::ThrowsMessage;

constexpr double SMALL_BUCKETS = 0.004;  // MiB: several buckets, and gradients that travel alone
constexpr int WIDTH = 100;

torch::nn::Sequential three_layers() {
  torch::manual_seed(1);
  return torch::nn::Sequential(torch::nn::Linear(WIDTH, WIDTH), torch::nn::Linear(WIDTH, WIDTH),
                               torch::nn::Linear(WIDTH, 3));
}

RANKS_TEST(ShardedStageMistakes, RefuseOptionsThatDoNotExist, Ranks(1, 2)) {
  EXPECT_THAT([] { ShardedDataParallel model(three_layers(), {.stage = 4}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("stage is 4")));
  EXPECT_THAT([] { ShardedDataParallel model(three_layers(), {.stage = 2, .bucket_cap_mb = 0.0}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("bucket_cap_mb is 0")));
}

RANKS_TEST(ShardedStageMistakes, OfRanksAreCompared, Ranks(2), Backends("shm", "tcp")) {
  EXPECT_THAT([&] { ShardedDataParallel model(three_layers(), {.stage = 1 + rank()}); },
              ThrowsMessage<Mismatch>(HasSubstr("stage 2")));
}

RANKS_TEST(ShardedStageMistakes, RefuseAGradientThatIsSetTooLate, Ranks(2), Backends("shm", "tcp")) {
  auto net = three_layers();
  ShardedDataParallel model(net, {.stage = 2});
  auto optimizer = model.optimizer<optim::SGD>(optim::SGDOptions(0.1));
  model.forward(at::ones({2, WIDTH})).sum().backward();
  net->parameters().front().mutable_grad() = at::ones({WIDTH, WIDTH});
  EXPECT_THAT([&] { optimizer.step(); },
              ThrowsMessage<InvalidArgument>(HasSubstr("parameter \"0.weight\" has a .grad that was set")));
  model.zero_grad();
  model.forward(at::ones({2, WIDTH})).sum().backward();
  optimizer.step();
}

RANKS_TEST(ShardedStageMistakes, RefuseABackwardAfterAveraging, Ranks(2), Backends("shm", "tcp")) {
  ShardedDataParallel model(three_layers(), {.stage = 2});
  auto optimizer = model.optimizer<optim::SGD>(optim::SGDOptions(0.1));
  const auto run_backward = [&] { model.forward(at::ones({2, WIDTH})).sum().backward(); };
  run_backward();
  model.clip_grad_norm_(1.0);
  EXPECT_THAT(run_backward,
              ThrowsMessage<InvalidArgument>(HasSubstr("backward() after clip_grad_norm_() or unscale_()")));
  model.zero_grad();
  run_backward();
  optimizer.step();
}

// Runs backward through its own graph, as Python's reentrant checkpoint does.
struct Reentrant : torch::autograd::Function<Reentrant> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const torch::nn::Linear& layer) {
    context->save_for_backward({x});
    context->saved_data["layer"] = reinterpret_cast<std::int64_t>(layer.get());
    const at::NoGradGuard no_grad;
    return layer.ptr()->forward(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    auto* const layer = reinterpret_cast<torch::nn::LinearImpl*>(context->saved_data["layer"].toInt());
    const at::Tensor x = context->get_saved_variables()[0].detach().requires_grad_(true);
    const at::AutoGradMode with_grad(true);
    layer->forward(x).backward(gradients[0]);
    return {x.grad(), at::Tensor()};
  }
};

// Each of its blocks runs a backward inside the backward.
RANKS_TEST(ShardedStageMistakes, GoWithBackwardsInsideABackward, Ranks(2), Backends("shm", "tcp")) {
  torch::set_num_threads(1);
  const auto run = [](int stage, bool is_reentrant) {
    torch::manual_seed(1);
    torch::nn::Linear first(WIDTH, WIDTH), second(WIDTH, WIDTH);
    torch::nn::Sequential net(first, second);
    ShardedDataParallel model(net, {.stage = stage, .bucket_cap_mb = SMALL_BUCKETS});
    auto optimizer = model.optimizer<optim::SGD>(optim::SGDOptions(0.1));
    for (int step = 0; step < 2; ++step) {
      const at::Tensor x =
          random_values({2, WIDTH}, static_cast<std::uint64_t>(2 * step + get_rank()), at::kFloat)
              .requires_grad_(true);
      const at::Tensor y =
          is_reentrant ? Reentrant::apply(Reentrant::apply(x, first), second) : second(first(x));
      y.pow(2).sum().backward();
      optimizer.step();
    }
    return std::pair(first->weight.detach().clone(), second->bias.detach().clone());
  };
  const auto [weight, bias] = run(2, true);
  const auto [expected_weight, expected_bias] = run(1, false);
  EXPECT_TRUE(weight.equal(expected_weight));
  EXPECT_TRUE(bias.equal(expected_bias));
}

// On the rank that finds it first as InvalidArgument, on the other one perhaps as what that rank told it.
RANKS_TEST(ShardedStageMistakes, RefuseASecondGradientInOneBackward, Ranks(2), Backends("shm", "tcp")) {
  torch::nn::Linear first(WIDTH, WIDTH), shared(WIDTH, WIDTH);
  torch::nn::Sequential net(first, shared);
  ShardedDataParallel model(net, {.stage = 2, .bucket_cap_mb = SMALL_BUCKETS});
  comm::barrier(world()).wait();  // nobody is still constructing when a rank aborts
  const at::Tensor x = first(at::ones({2, WIDTH}));
  EXPECT_THAT([&] { Reentrant::apply(Reentrant::apply(x, shared), shared).sum().backward(); },
              ThrowsMessage<Error>(HasSubstr("got a second gradient in one backward()")));
  EXPECT_FALSE(model.is_torn());
}

// The rank says so itself at its next forward; the other learns it in its backward.
RANKS_TEST(ShardedStageMistakes, TellOfABackwardThatAnExceptionLeft, Ranks(2, 3), Backends("shm", "tcp")) {
  auto net = three_layers();
  ShardedDataParallel model(net, {.stage = 2, .bucket_cap_mb = SMALL_BUCKETS});
  comm::barrier(world()).wait();  // nobody is still constructing when a rank aborts
  const at::Tensor hidden = net[0]->as<torch::nn::Linear>()->forward(at::ones({2, WIDTH}));
  const bool breaks = rank() == size() - 1;
  hidden.register_hook([breaks](const at::Tensor&) {
    if (breaks) throw std::runtime_error("on purpose");
  });
  const at::Tensor loss =
      net[2]->as<torch::nn::Linear>()->forward(net[1]->as<torch::nn::Linear>()->forward(hidden)).sum();
  if (breaks) {
    EXPECT_THROW(loss.backward(), std::runtime_error);
    EXPECT_THAT(
        [&] {
          model.forward(at::ones({2, WIDTH}));
        },
        ThrowsMessage<InvalidArgument>(HasSubstr("an exception ended it early on this rank")));
  } else {
    EXPECT_THAT([&] { loss.backward(); },
                ThrowsMessage<Aborted>(HasSubstr("an exception ended it early on this rank")));
  }
  EXPECT_FALSE(model.is_torn());
}

RANKS_TEST(ShardedStageMistakes, RanksWithMoreBackwardsAreTold, Ranks(2, 3), Backends("shm", "tcp")) {
  ShardedDataParallel model(three_layers(), {.stage = 2});
  auto optimizer = model.optimizer<optim::SGD>(optim::SGDOptions(0.1));
  const auto run = [&] {
    for (int pass = 0; pass < (rank() == 0 ? 2 : 1); ++pass)
      model.forward(at::ones({2, WIDTH})).sum().backward();
    optimizer.step();
  };
  EXPECT_THAT(run, ThrowsMessage<Mismatch>(HasSubstr("for the step of a ShardedDataParallel")));
  EXPECT_FALSE(model.is_torn());
}

// In the second step, with a bucket on its way and others to come.
RANKS_TEST(ShardedStageMistakes, SurvivorsOfABackwardAreToldWhoDied, Ranks(2, 3), Dies({1}),
           Backends("shm", "tcp"), Variable("LOCKSTEP_FAIL_POINT", "zero.reduce@1+3=kill")) {
  auto net = three_layers();
  ShardedDataParallel model(net, {.stage = 2, .bucket_cap_mb = SMALL_BUCKETS});
  auto optimizer = model.optimizer<optim::SGD>(optim::SGDOptions(0.1));
  const auto run_backward = [&] { model.forward(at::ones({2, WIDTH})).sum().backward(); };
  run_backward();
  optimizer.step();
  const at::Tensor before = net->parameters().front().detach().clone();
  EXPECT_THAT(run_backward, ThrowsMessage<PeerLost>(HasSubstr("rank 1")));
  EXPECT_FALSE(model.is_torn());
  EXPECT_TRUE(net->parameters().front().equal(before));
}

}  // namespace
}  // namespace stage_mistakes
}  // namespace lockstep

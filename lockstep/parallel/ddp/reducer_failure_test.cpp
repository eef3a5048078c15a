// What the reducer makes of failures: which are noticed when, what they say, and who is told.
#include "lockstep/parallel/ddp/reducer.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <thread>

#include "lockstep/base/error.h"
#include "testing/fake_ddp.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using testing::Chain;
using ::testing::ElementsAre;
using testing::fake_group;
using ::testing::HasSubstr;
using testing::one_each;
using ::testing::ThrowsMessage;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

TEST(ReducerFailure, LetsAnErrorLeaveBackwardWithItsTypeAndRepeatsIt) {
  auto backend = fake_group();
  Chain net;
  DistributedDataParallel ddp(net, one_each(backend));
  backend->on_start = [](const Request&) { throw PeerLost("rank 1 ended", 1); };
  auto loss = ddp->forward(torch::ones({1}));
  EXPECT_THROW(loss.backward(), PeerLost);
  EXPECT_THROW(ddp->forward(torch::ones({1})), PeerLost);
  EXPECT_THAT(backend->aborts, ElementsAre());  // the group knows already
}

TEST(ReducerFailure, LetsAnErrorOfTheFinalWaitLeaveBackwardWithItsType) {
  auto backend = fake_group();
  Chain net;
  DistributedDataParallel ddp(net, one_each(backend));
  backend->on_wait = [] { throw Timeout("rank 1 is silent"); };
  auto loss = ddp->forward(torch::ones({1}));
  EXPECT_THROW(loss.backward(), Timeout);
  EXPECT_THROW(ddp->forward(torch::ones({1})), Timeout);
}

TEST(ReducerFailure, NamesParametersWithoutGradientAtTheEndOfThatBackwardAndTellsThePeers) {
  auto backend = fake_group();
  const torch::Tensor used = torch::ones({1}, torch::requires_grad());
  const torch::Tensor idle = torch::ones({1}, torch::requires_grad());
  DistributedDataParallel ddp(NamedTensors{{"used", used}, {"head.idle", idle}}, {}, one_each(backend));
  auto loss = ddp.forward([&] { return used * 2; });
  const auto names_it = AllOf(HasSubstr("rank 0 of 2"), HasSubstr("parameter \"head.idle\" got no gradient"));
  EXPECT_THAT([&] { loss.backward(); }, ThrowsMessage<InvalidArgument>(names_it));
  EXPECT_THAT(backend->aborts, ElementsAre(names_it));
  EXPECT_THAT([&] { ddp.forward([&] { return used * 2; }); }, ThrowsMessage<InvalidArgument>(names_it));
}

TEST(ReducerFailure, RefusesToCreateAGraphOfGradientsButNotAPenaltyOnThem) {
  auto backend = fake_group();
  Chain net;
  DistributedDataParallel ddp(net, one_each(backend));
  const torch::Tensor x = torch::full({1}, 3.0, torch::requires_grad());
  const torch::Tensor y = ddp->forward(x);
  const auto slope = torch::autograd::grad({y}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
  slope.pow(2).backward();  // d (abc)^2 / da = 2 abc * bc
  EXPECT_EQ(net->parameters()[0].grad().item<float>(), 2 * 8.0F * 4.0F);
  EXPECT_EQ(ddp.stats().reductions, 1u);
  auto loss = ddp->forward(x);
  EXPECT_THAT([&] { loss.backward({}, true, /*create_graph=*/true); },
              ThrowsMessage<InvalidArgument>(HasSubstr("create_graph")));
}

TEST(ReducerFailure, NoticesAParameterThatChangedItsType) {
  auto backend = fake_group();
  Chain net;
  DistributedDataParallel ddp(net, one_each(backend));
  net->to(torch::kFloat64);
  EXPECT_THAT(
      [&] { ddp->forward(torch::ones({1}, torch::kFloat64)); },
      ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("\"first\""), HasSubstr("wrap the model again"))));
}

TEST(ReducerFailure, FindsABackwardThatAnExceptionEnded) {
  struct Failing : torch::autograd::Function<Failing> {
    static torch::Tensor forward(AutogradContext*, const torch::Tensor& x) { return x.clone(); }
    static variable_list backward(AutogradContext*, const variable_list&) {
      throw std::runtime_error("mine");
    }
  };
  auto backend = fake_group();
  const torch::Tensor w = torch::ones({1}, torch::requires_grad());
  const torch::Tensor v = torch::ones({1}, torch::requires_grad());
  DistributedDataParallel ddp(NamedTensors{{"w", w}, {"v", v}}, {}, one_each(backend));
  auto loss = ddp.forward([&] { return Failing::apply(w * 1) * v; });
  EXPECT_THAT([&] { loss.backward(); }, ThrowsMessage<std::runtime_error>(HasSubstr("mine")));
  const auto says_so = HasSubstr("an exception ended it early");
  EXPECT_THAT([&] { ddp.forward([&] { return w * v; }); }, ThrowsMessage<InvalidArgument>(says_so));
  EXPECT_THAT(backend->aborts, ElementsAre(says_so));
}

TEST(ReducerFailure, ForgetsALocalBackwardThatAnExceptionEnded) {
  struct Failing : torch::autograd::Function<Failing> {
    static torch::Tensor forward(AutogradContext*, const torch::Tensor& x) { return x.clone(); }
    static variable_list backward(AutogradContext*, const variable_list&) {
      throw std::runtime_error("mine");
    }
  };
  auto backend = fake_group();
  const torch::Tensor w = torch::ones({1}, torch::requires_grad());
  const torch::Tensor v = torch::ones({1}, torch::requires_grad());
  DistributedDataParallel ddp(NamedTensors{{"w", w}, {"v", v}}, {}, one_each(backend));
  {
    auto guard = ddp.no_sync();
    auto loss = ddp.forward([&] { return Failing::apply(w * 1) * v; });
    EXPECT_THROW(loss.backward(), std::runtime_error);
  }
  ddp.forward([&] { return w * v; }).backward();
  EXPECT_EQ(ddp.stats().reductions, 1u);
}

TEST(ReducerFailure, RefusesTwoThreadsInBackwardOfOneModel) {
  auto backend = fake_group();
  Chain net;
  DistributedDataParallel ddp(net, one_each(backend));
  const torch::Tensor other_loss = ddp->forward(torch::ones({1}));
  const torch::Tensor loss = ddp->forward(torch::ones({1}));
  std::string refusal;
  bool once = false;
  net->parameters()[1].register_hook([&](const torch::Tensor&) {  // in the middle of this thread's backward
    if (std::exchange(once, true)) return;
    std::thread([&] {
      try {
        other_loss.backward();
      } catch (const InvalidArgument& error) {
        refusal = error.what();
      }
    }).join();
  });
  EXPECT_THROW(loss.backward(), InvalidArgument);
  EXPECT_THAT(refusal, HasSubstr("two threads are in backward()"));
}

}  // namespace
}  // namespace lockstep

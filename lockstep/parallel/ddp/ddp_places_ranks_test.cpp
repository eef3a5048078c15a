// What the parts of the library say of themselves where ranks are at different places of their programs.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <chrono>
#include <stdexcept>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/parallel/ddp/distributed_data_parallel.h"
#include "lockstep/tensor/collectives.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

torch::Tensor trained_ones(std::vector<std::int64_t> shape) {
  return torch::ones(shape, torch::requires_grad());
}

struct TinyNetImpl : torch::nn::Module {
  TinyNetImpl() { w = register_parameter("w", torch::ones({3})); }
  torch::Tensor forward(const torch::Tensor& x) { return (w * x).sum(); }
  torch::Tensor w;
};
TORCH_MODULE(TinyNet);

// ------------------------------------------------------------------------------------------------------------
// buffers

RANKS_TEST(DdpBuffers, ThatRepeatOnePlaceAreBroadcastAsValues, Ranks(1, 2, 3)) {
  const auto value = static_cast<float>(rank() + 1);
  const torch::Tensor small = torch::full({1, 2}, value).expand({3, 2});
  const torch::Tensor large = torch::full({1}, value).expand({300000});
  DistributedDataParallel ddp(NamedTensors{{"w", trained_ones({2})}}, {{"small", small}, {"large", large}},
                              {.process_group = world()});
  EXPECT_TRUE(small.equal(torch::ones({3, 2})));
  EXPECT_TRUE(large.equal(torch::ones({300000})));
  ddp.forward([&] { return (ddp.parameters()[0] * small).sum(); }).backward();
}

RANKS_TEST(DdpBuffers, ThatRepeatOnOneRankAloneAreAMismatch, Ranks(2)) {
  const torch::Tensor buffer = rank() == 1 ? torch::ones({1}).expand({3}) : torch::ones({3});
  EXPECT_THAT(
      [&] {
        DistributedDataParallel(NamedTensors{{"w", trained_ones({2})}}, {{"mask", buffer}},
                                {.process_group = world()});
      },
      ThrowsMessage<Mismatch>(
          HasSubstr("buffer \"mask\" is [3] float32 on rank 0 but [3] float32 with strides [0]")));
}

RANKS_TEST(DdpBuffers, ThatAreQuantisedAreRefusedByNameOnAllRanks, Ranks(1, 2)) {
  const torch::Tensor quantised = torch::quantize_per_tensor(torch::ones({3}), 0.1, 0, torch::kQInt8);
  EXPECT_THAT(
      [&] {
        DistributedDataParallel(NamedTensors{{"w", trained_ones({2})}}, {{"table", quantised}},
                                {.process_group = world()});
      },
      ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("\"table\" is quantised"), HasSubstr("dequantises"))));
  const torch::Tensor repeated = torch::ones({1}).expand({3}).requires_grad_();
  EXPECT_THAT(
      [&] {
        DistributedDataParallel(NamedTensors{{"gain", repeated}}, {}, {.process_group = world()});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("\"gain\" has several elements in one place of memory")));
  all_reduce(torch::ones({1}), ReduceOp::SUM, world());  // the group is as good as before
}

// ------------------------------------------------------------------------------------------------------
// skipped steps

enum class When { IN_FORWARD, AFTER_FORWARD };

// Three steps; an exception ends the second on the last rank, which goes on.
void train_with_a_skip(DistributedDataParallel<TinyNetImpl>& ddp, bool skips, When way) {
  const auto step = [&](const torch::Tensor& x, bool fails) {
    if (fails && way == When::IN_FORWARD) ddp->forward(torch::ones({5}));  // no such size
    const torch::Tensor loss = ddp->forward(x);
    if (fails) throw std::runtime_error("a bad sample");
    loss.backward();
  };
  for (int i = 0; i < 3; ++i) {
    try {
      step(torch::full({3}, i), skips && i == 1);
    } catch (const Error&) {
      throw;
    } catch (const std::exception&) {
    }
  }
}

void expect_the_skip_is_named(const ProcessGroup& group, When way) {
  TinyNet net;
  DistributedDataParallel ddp(net, {.process_group = group});
  EXPECT_THAT(
      [&] { train_with_a_skip(ddp, group.rank() == group.size() - 1, way); },
      ThrowsMessage<Mismatch>(AllOf(
          HasSubstr(
              "for the gradients of a DistributedDataParallel after 1 forward() that an exception left"),
          HasSubstr("(TinyNet"), AnyOf(HasSubstr("(0 and 1 forwards"), HasSubstr("(1 and 0 forwards")),
          HasSubstr("skip the step on all ranks"))));
}

RANKS_TEST(SkippedStep, AfterForwardIsNamedByTheNextBackward, Ranks(2, 3),
           Backends("shm", "tcp", "hierarchical", "gloo")) {
  expect_the_skip_is_named(world(), When::AFTER_FORWARD);
}

RANKS_TEST(SkippedStep, InForwardIsNamedByTheNextBackward, Ranks(2)) {
  expect_the_skip_is_named(world(), When::IN_FORWARD);
}

template <typename Body> void caught(Body body) {
  try {
    body();
    ADD_FAILURE() << "it did not throw";
  } catch (const std::runtime_error&) {
  }
}

// What may differ between ranks goes on as before; the average is the one of the formula: grad w = mean of
// the ranks' sums.
RANKS_TEST(SkippedStep, ProgramsThatAreLegalAreNotRefused, Ranks(1, 2, 3)) {
  TinyNet net;
  DistributedDataParallel ddp(net, {.process_group = world()});
  const torch::Tensor x = torch::ones({3});
  const auto expect_average = [&](double expected, const char* what) {
    EXPECT_TRUE(net->w.grad().equal(torch::full({3}, expected))) << what << "\n" << net->w.grad();
    ddp.zero_grad();
  };
  const auto mean_of = [&](auto of_rank) {
    double sum = 0;
    for (int r = 0; r < size(); ++r) sum += of_rank(r);
    return static_cast<double>(static_cast<float>(sum) / static_cast<float>(size()));
  };
  torch::Tensor episode = ddp->forward(x);  // each rank has an episode of another length, and one backward
  for (int i = 0; i < rank(); ++i) episode = episode + ddp->forward(x);
  episode.backward();
  expect_average(mean_of([](int r) { return r + 1; }), "episodes");

  for (int i = 0; i < rank(); ++i) ddp->forward(x);  // results that nobody uses
  ddp->forward(x).backward();
  expect_average(1, "unused forwards");

  if (rank() == 0) {  // exceptions in evaluation, without grad mode, and between micro-batches
    caught([&] {
      ddp.eval();
      const std::shared_ptr<void> again(nullptr, [&](void*) { ddp.train(); });
      const torch::Tensor y = ddp->forward(x);
      throw std::runtime_error("in eval mode");
    });
    caught([&] {
      const torch::NoGradGuard no_grad;
      const torch::Tensor y = ddp->forward(x);
      throw std::runtime_error("without grad mode");
    });
    caught([&] {
      const auto guard = ddp.no_sync();
      const torch::Tensor y = ddp->forward(x);
      throw std::runtime_error("under no_sync");
    });
  }
  ddp->forward(x).backward();
  expect_average(1, "exceptions elsewhere");
}

RANKS_TEST(SkippedStep, AnExceptionAfterBackwardOrOnAllRanksIsLegal, Ranks(1, 2, 3)) {
  TinyNet net;
  DistributedDataParallel ddp(net, {.process_group = world()});
  const torch::Tensor x = torch::ones({3});
  const auto expect_ones = [&] {
    EXPECT_TRUE(net->w.grad().equal(x)) << net->w.grad();
    ddp.zero_grad();
  };
  caught([&] {  // after its backward a step may fail
    const torch::Tensor loss = ddp->forward(x);
    loss.backward();
    if (rank() == size() - 1) throw std::runtime_error("in the optimiser");
    throw std::runtime_error("elsewhere");
  });
  expect_ones();

  caught([&] {  // all ranks skip together
    const torch::Tensor loss = ddp->forward(x);
    throw std::runtime_error("on all ranks");
  });
  ddp->forward(x).backward();
  expect_ones();
}

RANKS_TEST(SkippedStep, IsLegalInAJoin, Ranks(2, 3)) {
  TinyNet net;
  DistributedDataParallel ddp(net, {.process_group = world()});
  join({&ddp}, [&] { train_with_a_skip(ddp, rank() == size() - 1, When::AFTER_FORWARD); });
  all_reduce(torch::ones({1}), ReduceOp::SUM, world());
}

// ------------------------------------------------------------------------------------------ which part made
// the calls

RANKS_TEST(DifferentPlaces, APeerThatLeftDuringBackwardIsExplained, Ranks(2), Backends("shm", "tcp")) {
  TinyNet net;
  DistributedDataParallel ddp(net, {.process_group = world()});
  const auto steps = rank() == 0 ? 2 : 1;
  const auto loop = [&] {
    for (int i = 0; i < steps; ++i) ddp->forward(torch::ones({3})).backward();
  };
  if (rank() == 1) {
    loop();
    world().close();
    return;
  }
  EXPECT_THAT(loop,
              ThrowsMessage<PeerLost>(AllOf(
                  HasSubstr("for the gradients of a DistributedDataParallel (TinyNet, bucket 0) on group"),
                  HasSubstr("has left the group"), HasSubstr("inputs differ in length (use dist::join"))));
}

RANKS_TEST(DifferentPlaces, ATimeoutIsExplained, Ranks(2), Backends("shm", "tcp"),
           Variable("LOCKSTEP_TIMEOUT", "1")) {
  TinyNet net;
  DistributedDataParallel ddp(net, {.process_group = world()});
  if (rank() == 1) {
    EXPECT_THROW(
        {
          for (;;) {
            world().backend().check_peers();
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
          }
        },
        Timeout);
    return;
  }
  EXPECT_THAT([&] { ddp->forward(torch::ones({3})).backward(); },
              ThrowsMessage<Timeout>(AllOf(HasSubstr("(TinyNet, bucket 0)"), HasSubstr("dist::join"))));
}

// -------------------------------------------------------------------------------------------- a module's own
// functions

RANKS_TEST(DdpWrapper, HasTheFunctionsOfAModule, Ranks(1, 2)) {
  torch::nn::Sequential net(torch::nn::Linear(2, 3), torch::nn::BatchNorm1d(3));
  DistributedDataParallel ddp(net, {.process_group = world()});
  ASSERT_EQ(ddp.named_buffers().size(), net->named_buffers().size());
  for (const auto& item : net->named_buffers())
    EXPECT_TRUE(ddp.named_buffers()[item.key()].is_same(item.value()));
  const auto step = [&] { ddp->forward(torch::randn({4, 2})).sum().backward(); };
  step();
  ddp.zero_grad(/*set_to_none=*/false);
  for (const auto& parameter : ddp.parameters())
    EXPECT_TRUE(parameter.grad().equal(torch::zeros_like(parameter)));
  step();
  ddp->zero_grad();
  for (const auto& parameter : ddp.parameters()) EXPECT_FALSE(parameter.grad().defined());
  ddp->to(torch::kCPU);
  ddp->to(torch::Device(torch::kCPU), torch::kFloat);
  EXPECT_THAT(
      [&] { ddp->to(torch::kDouble); },
      ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("to() would change \"0.weight\", which is Float on cpu"),
                                           HasSubstr("Move the model, then wrap it"))));
  EXPECT_THROW(ddp->to(torch::kMeta), InvalidArgument);
  step();
}

}  // namespace
}  // namespace lockstep

// What the reducer does inside one rank: when it starts what, what it copies, and what it makes of failures. That the averages
// are right is shown by several ranks in distributed_data_parallel_ranks_test.cpp.
#include "lockstep/parallel/ddp/reducer.h"

#include <gmock/gmock.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/torch.h>

#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/parallel/ddp/distributed_data_parallel.h"
#include "lockstep/parallel/ddp/fake_backend.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr double ONE_FLOAT_MB = 4.0 / 1024 / 1024;  // a cap that gives every gradient a bucket of its own

struct ChainImpl : torch::nn::Module {  // three scalars, used in the order of registration
  ChainImpl() {
    for (const char* name : {"first", "middle", "last"}) register_parameter(name, torch::full({1}, 2.0));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor y = x;
    for (const auto& weight : parameters()) y = y * weight;
    return y;
  }
};
TORCH_MODULE(Chain);

std::shared_ptr<FakeBackend> fake(int size = 2) { return std::make_shared<FakeBackend>(size); }

DistributedDataParallelOptions on(const std::shared_ptr<FakeBackend>& backend, double cap_mb = ONE_FLOAT_MB) {
  return {.process_group = ProcessGroup(backend), .bucket_cap_mb = cap_mb};
}

TEST(Reducer, StartsBucketsDuringTheVeryFirstBackward) {
  auto backend = fake();
  Chain net;
  DistributedDataParallel ddp(net, on(backend));
  std::vector<std::string> events;
  backend->on_start = [&](const Request&) { events.emplace_back("start"); };
  for (const auto& parameter : net->named_parameters()) {
    parameter.value().register_hook(
        [&, name = parameter.key()](const torch::Tensor&) { events.push_back(name); });
  }
  ddp->forward(torch::ones({1})).backward();
  EXPECT_THAT(events, ElementsAre("last", "start", "middle", "start", "first", "start"));
  EXPECT_EQ(ddp.stats().buckets_started, 3u);
  EXPECT_EQ(ddp.stats().buckets_overlapped, 2u);
  EXPECT_EQ(ddp.stats().reductions, 1u);
}

TEST(Reducer, StartsBucketsInIndexOrderWhateverArrivesFirst) {
  auto backend = fake();
  const torch::Tensor one = torch::ones({1}, torch::requires_grad());
  const torch::Tensor two = torch::ones({2}, torch::requires_grad());
  DistributedDataParallel ddp(NamedTensors{{"one", one}, {"two", two}}, {}, on(backend));
  std::vector<std::string> events;
  backend->on_start = [&](const Request& request) {
    events.push_back("start " + std::to_string(request.count));
  };
  one.register_hook([&](const torch::Tensor&) { events.emplace_back("one"); });
  two.register_hook([&](const torch::Tensor&) { events.emplace_back("two"); });
  ddp.forward([&] { return ((two * two).sum() * one).sum(); }).backward();  // backward reaches "one" first
  EXPECT_THAT(events, ElementsAre("one", "two", "start 2", "start 1"));
}

TEST(Reducer, CopiesEachFreshGradientOnceAndNothingWhenGradientsAreKept) {
  auto backend = fake();
  Chain net;
  DistributedDataParallel ddp(net, on(backend));
  torch::optim::SGD optimizer(net->parameters(), 0.01);
  constexpr std::uint64_t GRADIENT_BYTES = 3 * sizeof(float);
  for (std::uint64_t step = 1; step <= 3; ++step) {
    optimizer.zero_grad();
    ddp->forward(torch::ones({1})).backward();
    EXPECT_EQ(ddp.stats().bytes_copied, step * GRADIENT_BYTES);
    optimizer.step();
  }
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad(/*set_to_none=*/false);
    ddp->forward(torch::ones({1})).backward();
    optimizer.step();
  }
  net->zero_grad(/*set_to_none=*/false);
  ddp->forward(torch::ones({1})).backward();
  EXPECT_EQ(ddp.stats().bytes_copied, 3 * GRADIENT_BYTES);
  EXPECT_EQ(ddp.stats().reductions, 7u);
  EXPECT_EQ(ddp.stats().bucket_bytes, 3 * sizeof(float));
}

TEST(Reducer, LeavesGradientsWithTheLayoutOfTheParameter) {
  auto backend = fake();
  torch::nn::Conv2d conv(3, 4, 3);
  conv->weight.set_data(conv->weight.contiguous(at::MemoryFormat::ChannelsLast));
  DistributedDataParallel ddp(conv, on(backend, 25));
  ddp->forward(torch::ones({1, 3, 5, 5})).sum().backward();
  EXPECT_EQ(conv->weight.grad().strides(), conv->weight.strides());
  EXPECT_TRUE(
      torch::equal(conv->weight.grad(), torch::full({4, 3, 3, 3}, 9.0)));  // 3 x 3 places of each window
  EXPECT_FALSE(conv->weight.grad().is_view());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(conv->weight.grad().data_ptr()) % GRADIENT_ALIGNMENT_BYTES, 0u);
}

TEST(Reducer, AddsToGradientsThatExistedBefore) {
  auto backend = fake();
  Chain net;
  net->parameters()[0].mutable_grad() = torch::full({1}, 100.0);
  DistributedDataParallel ddp(net, on(backend));
  ddp->forward(torch::ones({1})).backward();
  EXPECT_EQ(net->parameters()[0].grad().item<float>(), 104.0F);
  EXPECT_EQ(net->parameters()[1].grad().item<float>(), 4.0F);
}

TEST(Reducer, LetsAnErrorLeaveBackwardWithItsTypeAndRepeatsIt) {
  auto backend = fake();
  Chain net;
  DistributedDataParallel ddp(net, on(backend));
  backend->on_start = [](const Request&) { throw PeerLost("rank 1 ended", 1); };
  auto loss = ddp->forward(torch::ones({1}));
  EXPECT_THROW(loss.backward(), PeerLost);
  EXPECT_THROW(ddp->forward(torch::ones({1})), PeerLost);
  EXPECT_THAT(backend->aborts, ElementsAre());  // the group knows already
}

TEST(Reducer, LetsAnErrorOfTheFinalWaitLeaveBackwardWithItsType) {
  auto backend = fake();
  Chain net;
  DistributedDataParallel ddp(net, on(backend));
  backend->on_wait = [] { throw Timeout("rank 1 is silent"); };
  auto loss = ddp->forward(torch::ones({1}));
  EXPECT_THROW(loss.backward(), Timeout);
  EXPECT_THROW(ddp->forward(torch::ones({1})), Timeout);
}

TEST(Reducer, NamesParametersWithoutGradientAtTheEndOfThatBackwardAndTellsThePeers) {
  auto backend = fake();
  const torch::Tensor used = torch::ones({1}, torch::requires_grad());
  const torch::Tensor idle = torch::ones({1}, torch::requires_grad());
  DistributedDataParallel ddp(NamedTensors{{"used", used}, {"head.idle", idle}}, {}, on(backend));
  auto loss = ddp.forward([&] { return used * 2; });
  const auto names_it = AllOf(HasSubstr("rank 0 of 2"), HasSubstr("parameter \"head.idle\" got no gradient"));
  EXPECT_THAT([&] { loss.backward(); }, ThrowsMessage<InvalidArgument>(names_it));
  EXPECT_THAT(backend->aborts, ElementsAre(names_it));
  EXPECT_THAT([&] { ddp.forward([&] { return used * 2; }); }, ThrowsMessage<InvalidArgument>(names_it));
}

TEST(Reducer, RefusesSparseGradientsByName) {
  auto backend = fake();
  torch::nn::Embedding table(torch::nn::EmbeddingOptions(5, 2).sparse(true));
  DistributedDataParallel ddp(table, on(backend));
  auto loss = ddp->forward(torch::tensor({1, 2})).sum();
  EXPECT_THAT([&] { loss.backward(); },
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("\"weight\""), HasSubstr("Sparse"))));
}

TEST(Reducer, RefusesToCreateAGraphOfGradientsButNotAPenaltyOnThem) {
  auto backend = fake();
  Chain net;
  DistributedDataParallel ddp(net, on(backend));
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

TEST(Reducer, NoticesAParameterThatChangedItsType) {
  auto backend = fake();
  Chain net;
  DistributedDataParallel ddp(net, on(backend));
  net->to(torch::kFloat64);
  EXPECT_THAT(
      [&] { ddp->forward(torch::ones({1}, torch::kFloat64)); },
      ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("\"first\""), HasSubstr("wrap the model again"))));
}

TEST(Reducer, FindsABackwardThatAnExceptionEnded) {
  struct Failing : torch::autograd::Function<Failing> {
    static torch::Tensor forward(AutogradContext*, const torch::Tensor& x) { return x.clone(); }
    static variable_list backward(AutogradContext*, const variable_list&) {
      throw std::runtime_error("mine");
    }
  };
  auto backend = fake();
  const torch::Tensor w = torch::ones({1}, torch::requires_grad());
  const torch::Tensor v = torch::ones({1}, torch::requires_grad());
  DistributedDataParallel ddp(NamedTensors{{"w", w}, {"v", v}}, {}, on(backend));
  auto loss = ddp.forward([&] { return Failing::apply(w * 1) * v; });
  EXPECT_THAT([&] { loss.backward(); }, ThrowsMessage<std::runtime_error>(HasSubstr("mine")));
  const auto says_so = HasSubstr("an exception ended it early");
  EXPECT_THAT([&] { ddp.forward([&] { return w * v; }); }, ThrowsMessage<InvalidArgument>(says_so));
  EXPECT_THAT(backend->aborts, ElementsAre(says_so));
}

TEST(Reducer, ForgetsALocalBackwardThatAnExceptionEnded) {
  struct Failing : torch::autograd::Function<Failing> {
    static torch::Tensor forward(AutogradContext*, const torch::Tensor& x) { return x.clone(); }
    static variable_list backward(AutogradContext*, const variable_list&) {
      throw std::runtime_error("mine");
    }
  };
  auto backend = fake();
  const torch::Tensor w = torch::ones({1}, torch::requires_grad());
  const torch::Tensor v = torch::ones({1}, torch::requires_grad());
  DistributedDataParallel ddp(NamedTensors{{"w", w}, {"v", v}}, {}, on(backend));
  {
    auto guard = ddp.no_sync();
    auto loss = ddp.forward([&] { return Failing::apply(w * 1) * v; });
    EXPECT_THROW(loss.backward(), std::runtime_error);
  }
  ddp.forward([&] { return w * v; }).backward();
  EXPECT_EQ(ddp.stats().reductions, 1u);
}

// Holds its own parameter back from the graph and runs a backward inside the backward, as reentrant checkpointing does.
struct Checkpoint : torch::autograd::Function<Checkpoint> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& x,
                               const torch::Tensor& weight) {
    context->save_for_backward({x});
    context->saved_data["weight"] = weight;
    return x * weight;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const torch::AutoGradMode on(true);
    const torch::Tensor x = context->get_saved_variables()[0].detach().requires_grad_();
    torch::autograd::backward({x * context->saved_data["weight"].toTensor()}, {gradients[0]});
    return {x.grad(), torch::Tensor()};
  }
};

TEST(Reducer, AveragesOnceWhenABackwardRunsInsideTheBackward) {
  auto backend = fake();
  const torch::Tensor a = torch::full({1}, 2.0, torch::requires_grad());
  const torch::Tensor b = torch::full({1}, 3.0, torch::requires_grad());
  const torch::Tensor c = torch::full({1}, 5.0, torch::requires_grad());
  DistributedDataParallel ddp(NamedTensors{{"a", a}, {"b", b}, {"c", c}}, {}, on(backend));
  for (int step = 1; step <= 2; ++step) {
    ddp.forward([&] { return Checkpoint::apply(a * 1, b) * c; }).backward();
    EXPECT_EQ(a.grad().item<float>(), step * 15.0F);
    EXPECT_EQ(b.grad().item<float>(), step * 10.0F);
    EXPECT_EQ(c.grad().item<float>(), step * 6.0F);
    EXPECT_EQ(ddp.stats().reductions, static_cast<std::uint64_t>(step));
  }
}

TEST(Reducer, AveragesWhenEveryParameterIsCheckpointed) {
  auto backend = fake();
  const torch::Tensor x = torch::full({1}, 2.0, torch::requires_grad());
  const torch::Tensor b = torch::full({1}, 3.0, torch::requires_grad());
  const torch::Tensor c = torch::full({1}, 5.0, torch::requires_grad());
  DistributedDataParallel ddp(NamedTensors{{"b", b}, {"c", c}}, {}, on(backend));
  ddp.forward([&] { return Checkpoint::apply(Checkpoint::apply(x, b), c); }).backward();
  EXPECT_EQ(b.grad().item<float>(), 10.0F);
  EXPECT_EQ(ddp.stats().reductions, 1u);
}

TEST(Reducer, RefusesASecondGradientOfOneParameterInOneBackward) {
  auto backend = fake();
  const torch::Tensor x = torch::full({1}, 2.0, torch::requires_grad());
  const torch::Tensor b = torch::full({1}, 3.0, torch::requires_grad());
  DistributedDataParallel ddp(NamedTensors{{"b", b}, {"x", x}}, {}, on(backend));
  auto loss = ddp.forward([&] { return Checkpoint::apply(Checkpoint::apply(x * 1, b), b); });
  EXPECT_THAT([&] { loss.backward(); },
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("\"b\""), HasSubstr("second gradient"))));
}

TEST(Reducer, RefusesTwoThreadsInBackwardOfOneModel) {
  auto backend = fake();
  Chain net;
  DistributedDataParallel ddp(net, on(backend));
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

TEST(Reducer, WorksFromThreadToThread) {
  auto backend = fake();
  Chain net;
  DistributedDataParallel ddp(net, on(backend));
  for (int step = 0; step < 3; ++step) {
    std::thread([&] { ddp->forward(torch::ones({1})).backward(); }).join();
  }
  EXPECT_EQ(ddp.stats().reductions, 3u);
  EXPECT_EQ(net->parameters()[0].grad().item<float>(), 12.0F);
}

TEST(Reducer, KeepsTheUsersOwnHookOnTheParameter) {
  struct Count : torch::autograd::PostAccumulateGradHook {
    explicit Count(int* calls) : calls_(calls) {}
    void operator()(const torch::Tensor&) override { ++*calls_; }
    int* calls_;
  };
  auto backend = fake();
  Chain net;
  int calls_before = 0;
  int calls_after = 0;
  torch::autograd::impl::set_post_acc_grad_hooks(net->parameters()[0],
                                                 std::make_unique<Count>(&calls_before));
  DistributedDataParallel ddp(net, on(backend));
  torch::autograd::impl::set_post_acc_grad_hooks(net->parameters()[1], std::make_unique<Count>(&calls_after));
  ddp->forward(torch::ones({1})).backward();
  EXPECT_EQ(calls_before, 1);
  EXPECT_EQ(calls_after, 1);
  EXPECT_EQ(ddp.stats().reductions, 1u);
}

TEST(Reducer, LeavesNothingOnTheModelWhenDestroyed) {
  auto backend = fake();
  Chain net;
  { DistributedDataParallel ddp(net, on(backend)); }
  const std::size_t started = backend->started.size();
  net->forward(torch::ones({1})).backward();
  EXPECT_EQ(backend->started.size(), started);
  EXPECT_EQ(net->parameters()[0].grad().item<float>(), 4.0F);
}

TEST(Reducer, AveragesInTheLastOfSeveralDeclaredPasses) {
  auto backend = fake();
  const torch::Tensor a = torch::full({1}, 2.0, torch::requires_grad());
  const torch::Tensor b = torch::full({1}, 3.0, torch::requires_grad());
  auto options = on(backend);
  options.backward_passes_per_step = 2;
  DistributedDataParallel ddp(NamedTensors{{"a", a}, {"b", b}}, {}, options);
  for (std::uint64_t step = 1; step <= 2; ++step) {
    a.mutable_grad().reset();
    b.mutable_grad().reset();
    ddp.forward([&] { return a * 7; }).backward();
    EXPECT_EQ(ddp.stats().reductions, step - 1);
    ddp.forward([&] { return b * 11; }).backward();
    EXPECT_EQ(ddp.stats().reductions, step);
    EXPECT_EQ(a.grad().item<float>(), 7.0F);
    EXPECT_EQ(b.grad().item<float>(), 11.0F);
  }
  ddp.forward([&] { return a * 1; }).backward();
  auto loss = ddp.forward([&] { return a * 1; });
  a.mutable_grad().reset();
  b.mutable_grad().reset();
  EXPECT_THAT([&] { loss.backward(); }, ThrowsMessage<InvalidArgument>(HasSubstr("\"b\" got no gradient")));
}

TEST(Reducer, AcceptsUnusedParametersAndDoesNotWaitForThem) {
  auto backend = fake();
  const torch::Tensor first = torch::full({1}, 2.0, torch::requires_grad());
  const torch::Tensor idle = torch::full({1}, 3.0, torch::requires_grad());
  const torch::Tensor last = torch::full({1}, 5.0, torch::requires_grad());
  auto options = on(backend);
  options.find_unused_parameters = true;
  DistributedDataParallel ddp(NamedTensors{{"first", first}, {"idle", idle}, {"last", last}}, {}, options);
  auto [loss, number] = ddp.forward([&] { return std::tuple((first * 1) * last, 1); });
  loss.backward();
  EXPECT_EQ(ddp.stats().buckets_overlapped, 2u);  // "last" and "idle", before "first" had arrived
  EXPECT_FALSE(idle.grad().defined());
  EXPECT_EQ(first.grad().item<float>(), 5.0F);

  idle.mutable_grad() = torch::full({1}, 42.0);
  for (int i = 0; i < 2; ++i) ddp.forward([&] { return first * last; }).backward();
  EXPECT_EQ(idle.grad().item<float>(), 42.0F);
  ddp.forward([&] { return first * last * idle; }).backward();
  ddp.forward([&] { return first * last; }).backward();  // now .grad lies in the bucket
  EXPECT_EQ(idle.grad().item<float>(), 52.0F);
}

struct Opaque {
  torch::Tensor hidden;
};

TEST(Reducer, FindsUnusedParametersBehindOutputsItCannotLookInto) {
  auto backend = fake();
  const torch::Tensor first = torch::full({1}, 2.0, torch::requires_grad());
  const torch::Tensor idle = torch::full({1}, 3.0, torch::requires_grad());
  auto options = on(backend);
  options.find_unused_parameters = true;
  DistributedDataParallel ddp(NamedTensors{{"first", first}, {"idle", idle}}, {}, options);
  ddp.forward([&] { return Opaque{first * 2}; }).hidden.backward();
  EXPECT_EQ(first.grad().item<float>(), 2.0F);
  EXPECT_FALSE(idle.grad().defined());
}

TEST(Reducer, TakesPartWithoutABackwardWhenTheOutputsReachNoParameter) {
  auto backend = fake();
  const torch::Tensor w = torch::full({1}, 2.0, torch::requires_grad());
  auto options = on(backend);
  options.find_unused_parameters = true;
  DistributedDataParallel ddp(NamedTensors{{"w", w}}, {}, options);
  ddp.forward([&] { return torch::ones({1}); });
  EXPECT_EQ(ddp.stats().reductions, 1u);
  ddp.eval();
  ddp.forward([&] { return torch::ones({1}); });
  EXPECT_EQ(ddp.stats().reductions, 1u);
  w.requires_grad_(false);  // a frozen adversary: nobody expects gradients
  ddp.train();
  ddp.forward([&] { return torch::ones({1}); });
  EXPECT_EQ(ddp.stats().reductions, 1u);
}

TEST(Reducer, RefusesAGradientAfterTheParameterWasFoundUnused) {
  auto backend = fake();
  const torch::Tensor first = torch::full({1}, 2.0, torch::requires_grad());
  const torch::Tensor last = torch::full({1}, 3.0, torch::requires_grad());
  auto options = on(backend);
  options.find_unused_parameters = true;
  DistributedDataParallel ddp(NamedTensors{{"first", first}, {"last", last}}, {}, options);
  auto output = ddp.forward([&] { return first * 1; });
  auto loss = ((last * 1) * output.detach() + output).sum();
  bool refused = false;
  try {
    loss.backward();
  } catch (const InvalidArgument& error) {
    refused = true;
    EXPECT_THAT(error.what(), AllOf(HasSubstr("\"last\""), HasSubstr("after it was found unused")));
  }
  // Autograd may visit "last" before its bucket has started; then the gradient still counts.
  if (!refused) EXPECT_EQ(last.grad().item<float>(), 2.0F);
}

}  // namespace
}  // namespace lockstep

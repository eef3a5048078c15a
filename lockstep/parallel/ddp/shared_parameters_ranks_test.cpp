// Several live wrappers of models that share parameters: an actor and a critic with one encoder, a model that
// is wrapped again. The expected values are those of one process on the whole batch, which Python's wrappers
// reach, too.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <functional>

#include "lockstep/base/error.h"
#include "lockstep/parallel/ddp/distributed_data_parallel.h"
#include "testing/ranks.h"

namespace lockstep::shared_parameters {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int BATCH = 12;
constexpr int STEPS = 12;
constexpr auto DOUBLE = at::kDouble;

struct HeadedImpl : torch::nn::Module {
  explicit HeadedImpl(const torch::nn::Linear& shared)
      : encoder(register_module("encoder", shared)), head(register_module("head", torch::nn::Linear(64, 2))) {
    to(DOUBLE);
  }
  torch::Tensor forward(const torch::Tensor& x) { return head(torch::tanh(encoder(x))); }
  torch::nn::Linear encoder, head;
};
TORCH_MODULE(Headed);

struct Pair {
  explicit Pair(int seed) {
    torch::manual_seed(seed);
    const torch::nn::Linear encoder(6, 64);
    actor = Headed(encoder);
    critic = Headed(encoder);
  }
  Headed actor{nullptr}, critic{nullptr};
};

torch::Tensor batch() {
  torch::manual_seed(3);
  return torch::randn({BATCH, 6}, DOUBLE);
}

torch::Tensor share_of(const ProcessGroup& group) {
  const int part = BATCH / group.size();
  return batch().narrow(0, group.rank() * part, part);
}

torch::Tensor actor_loss(const torch::Tensor& y) { return y.pow(2).mean(); }
torch::Tensor critic_loss(const torch::Tensor& y) { return torch::softplus(y).mean(); }

template <typename Net> void expect_close(const Net& net, const Net& expected, const std::string& what) {
  for (const auto& item : expected->named_parameters()) {
    const torch::Tensor own = net->named_parameters()[item.key()];
    ASSERT_EQ(own.grad().defined(), item.value().grad().defined()) << what << " " << item.key();
    EXPECT_TRUE(torch::allclose(own, item.value(), 1e-11, 1e-13)) << what << " " << item.key();
    if (!own.grad().defined()) continue;
    EXPECT_TRUE(torch::allclose(own.grad(), item.value().grad(), 1e-11, 1e-13)) << what << " " << item.key();
  }
}

using Forward = std::function<torch::Tensor(const torch::Tensor&)>;
// One step's backward passes.
using Losses = std::function<void(const Forward& actor, const Forward& critic, const torch::Tensor& x)>;

void train(Pair& pair, const Forward& actor, const Forward& critic, const torch::Tensor& x,
           const Losses& losses, bool to_none) {
  torch::optim::SGD actor_steps(pair.actor->parameters(), 0.1);
  torch::optim::SGD critic_steps(pair.critic->head->parameters(), 0.1);
  for (int step = 0; step < STEPS; ++step) {
    actor_steps.zero_grad(to_none);
    critic_steps.zero_grad(to_none);
    losses(actor, critic, x);
    actor_steps.step();
    critic_steps.step();
  }
}

const std::vector<std::pair<std::string, Losses>> WAYS = {
    {"one backward of the sum",
     [](const Forward& actor, const Forward& critic, const torch::Tensor& x) {
       (actor_loss(actor(x)) + critic_loss(critic(x))).backward();
     }},
    {"one after the other",
     [](const Forward& actor, const Forward& critic, const torch::Tensor& x) {
       actor_loss(actor(x)).backward();
       critic_loss(critic(x)).backward();
     }},
    {"twice the actor, once the critic",
     [](const Forward& actor, const Forward& critic, const torch::Tensor& x) {
       actor_loss(actor(x)).backward();
       actor_loss(actor(x * 2)).backward();
       critic_loss(critic(x)).backward();
     }}};

RANKS_TEST(SharedParameters, ActorAndCriticTrainAsInOneProcess, Ranks(1, 2, 3, 4)) {
  torch::set_num_threads(1);
  for (const auto& [name, losses] : WAYS) {
    for (const bool to_none : {true, false}) {
      Pair alone(0);
      train(
          alone, [&](const torch::Tensor& x) { return alone.actor->forward(x); },
          [&](const torch::Tensor& x) { return alone.critic->forward(x); }, batch(), losses, to_none);
      Pair pair(rank());
      const DistributedDataParallelOptions options{.process_group = world(), .bucket_cap_mb = 1e-4};
      DistributedDataParallel actor(pair.actor, options);
      DistributedDataParallel critic(pair.critic, options);
      train(
          pair, [&](const torch::Tensor& x) { return actor.forward(x); },
          [&](const torch::Tensor& x) { return critic.forward(x); }, share_of(world()), losses, to_none);
      expect_close(pair.actor, alone.actor, name);
      expect_close(pair.critic, alone.critic, name);
    }
  }
}

// What no_sync() leaves in a shared gradient is averaged by the next backward of either.
RANKS_TEST(SharedParameters, AccumulateWithoutCommunication, Ranks(2, 3)) {
  torch::set_num_threads(1);
  Pair alone(0);
  actor_loss(alone.actor->forward(batch())).backward();
  (actor_loss(alone.actor->forward(batch())) + critic_loss(alone.critic->forward(batch()))).backward();
  Pair pair(rank());
  DistributedDataParallel actor(pair.actor, {.process_group = world()});
  DistributedDataParallel critic(pair.critic, {.process_group = world()});
  const torch::Tensor x = share_of(world());
  {
    const auto guard = actor.no_sync();
    actor_loss(actor.forward(x)).backward();
  }
  (actor_loss(actor.forward(x)) + critic_loss(critic.forward(x))).backward();
  const auto gradient = [](const Pair& from) { return from.actor->encoder->weight.grad(); };
  EXPECT_TRUE(torch::allclose(gradient(pair), gradient(alone), 1e-11, 1e-13));
}

// Python: "Expected to mark a variable ready only once", in the second backward.
RANKS_TEST(SharedParameters, BackwardOfOneAfterForwardOfBothIsRefused, Ranks(2)) {
  Pair pair(0);
  DistributedDataParallel actor(pair.actor, {.process_group = world()});
  DistributedDataParallel critic(pair.critic, {.process_group = world()});
  const torch::Tensor x = share_of(world());
  const torch::Tensor loss = actor_loss(actor.forward(x));
  critic.forward(x);
  try {
    loss.backward();
    ADD_FAILURE() << "not refused";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("\"head."), HasSubstr("Another wrapper has \"encoder.")));
  } catch (const Aborted&) {  // the other rank was first
  }
}

void step(torch::optim::Optimizer& optimizer, const torch::Tensor& loss) {
  optimizer.zero_grad();
  loss.backward();
  optimizer.step();
}

RANKS_TEST(SharedParameters, AModelWrappedAgainTrainsAsInOneProcess, Ranks(1, 2, 3, 4)) {
  torch::set_num_threads(1);
  const torch::Tensor x = share_of(world());
  Pair alone(0);
  Pair pair(rank());
  torch::optim::SGD alone_steps(alone.actor->parameters(), 0.1);
  torch::optim::SGD steps(pair.actor->parameters(), 0.1);
  DistributedDataParallel first(pair.actor, {.process_group = world()});
  for (int i = 0; i < 2; ++i) step(steps, actor_loss(first.forward(x)));
  DistributedDataParallel second(pair.actor, {.process_group = world(), .bucket_cap_mb = 1e-4});
  for (int i = 0; i < STEPS; ++i) {
    step(steps, actor_loss(second.forward(x)));
    EXPECT_EQ(second.stats().reductions, i + 1u);
  }
  EXPECT_EQ(first.stats().reductions, 2u);  // its forward did not run again
  for (int i = 0; i < 2; ++i) step(steps, actor_loss(first.forward(x)));
  for (int i = 0; i < STEPS + 4; ++i) step(alone_steps, actor_loss(alone.actor->forward(batch())));
  expect_close(pair.actor, alone.actor, "wrapped again");
}

// Two backward passes after two forwards: none of the wrappers expects the second.
RANKS_TEST(SharedParameters, EveryBackwardIsAveragedByTheWrapperThatWasUsedLast, Ranks(2, 3)) {
  torch::set_num_threads(1);
  Pair alone(0);
  Pair pair(rank());
  const DistributedDataParallel first(pair.actor, {.process_group = world()});
  DistributedDataParallel second(pair.actor, {.process_group = world()});
  const auto passes = [](const Forward& forward, const torch::Tensor& x) {
    const torch::Tensor one = actor_loss(forward(x));
    const torch::Tensor two = critic_loss(forward(x));
    one.backward();
    two.backward();
  };
  passes([&](const torch::Tensor& x) { return alone.actor->forward(x); }, batch());
  passes([&](const torch::Tensor& x) { return second.forward(x); }, share_of(world()));
  expect_close(pair.actor, alone.actor, "two forwards, two backward passes");
  EXPECT_EQ(second.stats().reductions, 2u);
}

struct TableImpl : torch::nn::Module {
  explicit TableImpl(const torch::nn::Embedding& shared) : table(register_module("table", shared)) {
    to(DOUBLE);
  }
  torch::Tensor forward(const torch::Tensor& words) { return table(words).pow(2).sum(); }
  torch::nn::Embedding table;
};
TORCH_MODULE(Table);

// They are gathered at the end of backward, one wrapper after the other: what the second contributes is not
// the first one's average.
RANKS_TEST(SharedParameters, SparseGradientsAreAveragedOnce, Ranks(1, 2, 3)) {
  torch::manual_seed(4);
  const torch::nn::Embedding table(torch::nn::EmbeddingOptions(5, 3).sparse(true));
  Table one(table);
  Table two(table);
  const torch::Tensor words = torch::tensor({rank(), 4});
  torch::Tensor expected = torch::zeros({5, 3}, DOUBLE);
  for (int r = 0; r < size(); ++r) expected[r] += 4 * table->weight.detach()[r];
  expected[4] += size() * 4 * table->weight.detach()[4];
  DistributedDataParallel first(one, {.process_group = world()});
  DistributedDataParallel second(two, {.process_group = world()});
  (first.forward(words) + second.forward(words)).backward();
  EXPECT_TRUE(torch::allclose(table->weight.grad().to_dense(), expected / size(), 1e-14, 1e-15));
}

}  // namespace
}  // namespace lockstep::shared_parameters

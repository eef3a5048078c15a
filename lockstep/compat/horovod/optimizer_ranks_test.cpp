// DistributedOptimizer trains as one process with the batch of all ranks, and its corners.
#include "lockstep/compat/horovod/optimizer.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/compat/horovod/functions.h"
#include "testing/ranks.h"

namespace lockstep::compat::horovod {
namespace optimizer_ranks_test {
namespace {

namespace hvd = lockstep::compat::horovod;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

torch::nn::Sequential net(int seed) {
  torch::manual_seed(static_cast<std::uint64_t>(seed));
  return torch::nn::Sequential(torch::nn::Linear(6, 5), torch::nn::Tanh(), torch::nn::Linear(5, 3));
}

struct Trial {
  hvd::DistributedOptimizerOptions options = {};
  int passes = 1;
  double clip = 0;
  bool loads =
      false;  // a file into its model before each step, which gives libtorch's parameters new accumulators
};

void save_and_load(torch::nn::Sequential& model) {
  std::stringstream file;
  torch::save(model, file);
  torch::load(model, file);
}

// The largest difference from one process that sees the batches of all ranks.
double difference(int rank, int size, const Trial& trial) {
  auto mine = net(rank), alone = net(0);
  torch::optim::AdamW adam(mine->parameters(), torch::optim::AdamWOptions(rank == 0 ? 0.01 : 1.0)),
      single(alone->parameters(), torch::optim::AdamWOptions(0.01));
  hvd::DistributedOptimizer optimizer(adam, mine->named_parameters().pairs(), trial.options);
  hvd::broadcast_parameters(*mine, 0);
  hvd::broadcast_optimizer_state(adam, 0);
  EXPECT_DOUBLE_EQ(adam.param_groups()[0].options().get_lr(), 0.01);
  for (int step = 0; step < 4; ++step) {
    if (trial.loads) save_and_load(mine);
    for (int pass = 0; pass < trial.passes; ++pass) {
      torch::manual_seed(static_cast<std::uint64_t>(100 + step * trial.passes + pass));
      const at::Tensor all = torch::randn({4 * size, 6});
      mine->forward(all.slice(0, 4 * rank, 4 * rank + 4)).square().mean().backward();
      alone->forward(all).square().mean().backward();
    }
    std::shared_ptr<void> skipped;
    if (trial.clip > 0) {
      optimizer.synchronize();
      torch::nn::utils::clip_grad_norm_(mine->parameters(), trial.clip);
      torch::nn::utils::clip_grad_norm_(alone->parameters(), trial.clip);
      skipped = optimizer.skip_synchronize();
    }
    optimizer.step();
    single.step();
    optimizer.zero_grad();
    single.zero_grad();
  }
  double largest = 0;
  for (std::size_t i = 0; i < mine->parameters().size(); ++i) {
    const at::Tensor own = mine->parameters()[i].detach();
    EXPECT_TRUE(at::equal(hvd::broadcast(own, 0), own)) << "the ranks differ";
    largest = std::max(largest, (own - alone->parameters()[i]).abs().max().item<double>());
  }
  return largest;
}

RANKS_TEST(HorovodOptimizer, TrainsAsOneProcess, Ranks(1, 2, 3, 4)) {
  hvd::init();
  EXPECT_LT(difference(rank(), size(), {}), 1e-5);
  EXPECT_LT(difference(rank(), size(), {.options = {.num_groups = 2}}), 1e-5);
  EXPECT_LT(difference(rank(), size(), {.options = {.groups = {{"0.weight", "2.bias"}}}}), 1e-5);
  EXPECT_LT(difference(rank(), size(), {.options = {.gradient_predivide_factor = 2}}), 1e-5);
  EXPECT_LT(difference(rank(), size(), {.options = {.backward_passes_per_step = 2}, .passes = 2}), 1e-5);
  EXPECT_LT(difference(rank(), size(), {.clip = 0.01}), 1e-4);
  EXPECT_LT(difference(rank(), size(), {.loads = true}), 1e-5);
  EXPECT_LT(difference(rank(), size(), {.options = {.num_groups = 2}, .loads = true}), 1e-5);
  EXPECT_LT(
      difference(rank(), size(), {.options = {.backward_passes_per_step = 2}, .passes = 2, .loads = true}),
      1e-5);
  EXPECT_LT(difference(rank(), size(), {.options = {.compression = hvd::Compression::fp16}}), 2e-2);
}

// Only odd ranks have a gradient of b.
RANKS_TEST(HorovodOptimizer, ARankWithoutAGradientGivesZeros, Ranks(2, 3)) {
  hvd::init();
  const at::Tensor a = torch::zeros({2}, torch::requires_grad()),
                   b = torch::zeros({2}, torch::requires_grad());
  torch::optim::SGD sgd(std::vector<at::Tensor>{a, b}, torch::optim::SGDOptions(1));
  hvd::DistributedOptimizer optimizer(sgd, {{"a", a}, {"b", b}});
  (rank() % 2 == 0 ? a : b).sum().backward();
  optimizer.step();
  const double odd = size() / 2;
  EXPECT_TRUE(at::allclose(b.detach(), at::full({2}, -odd / size())));
}

RANKS_TEST(HorovodOptimizer, SparseGradientsAreGathered, Ranks(2, 3)) {
  hvd::init();
  for (const bool dense : {false, true}) {
    torch::nn::Embedding model(torch::nn::EmbeddingOptions(5, 2).sparse(true));
    model->weight.detach().zero_();
    torch::optim::SGD sgd(model->parameters(), torch::optim::SGDOptions(1));
    hvd::DistributedOptimizer optimizer(sgd, model->named_parameters().pairs(), {.sparse_as_dense = dense});
    model->forward(torch::full({1}, rank(), at::kLong)).sum().backward();
    optimizer.step();
    EXPECT_TRUE(
        at::allclose(model->weight.detach().slice(0, 0, size()), at::full({size(), 2}, -1.0 / size())));
    EXPECT_TRUE(at::equal(model->weight.detach().slice(0, size()), at::zeros({5 - size(), 2})));
  }
}

RANKS_TEST(HorovodOptimizer, AdasumAddsOrthogonalChanges, Ranks(2, 4)) {
  hvd::init();
  const at::Tensor w = torch::zeros({4}, torch::requires_grad());
  torch::optim::SGD sgd(std::vector<at::Tensor>{w}, torch::optim::SGDOptions(1));
  hvd::DistributedOptimizer optimizer(sgd, {{"w", w}}, {.op = hvd::Adasum});
  (w[rank()] * (rank() + 1)).backward();
  optimizer.step();
  EXPECT_TRUE(at::equal(w.detach().slice(0, 0, size()), -at::arange(1, size() + 1, at::kFloat)));
  EXPECT_THAT([&] { auto skipped = optimizer.skip_synchronize(); },
              ThrowsMessage<InvalidArgument>(HasSubstr("nothing to skip")));
}

RANKS_TEST(HorovodOptimizer, NamesMistakes, Ranks(1)) {
  hvd::init();
  auto model = net(0);
  torch::optim::SGD sgd(model->parameters(), torch::optim::SGDOptions(1));
  const NamedTensors named = model->named_parameters().pairs();
  const auto says = [&](const char* what, const NamedTensors& given,
                        const hvd::DistributedOptimizerOptions& options) {
    EXPECT_THAT([&] { hvd::DistributedOptimizer(sgd, given, options); },
                ThrowsMessage<InvalidArgument>(HasSubstr(what)));
  };
  says("two parameters have the name \"x\"", {{"x", named[0].second}, {"x", named[1].second}}, {});
  says("lacks a parameter", {named[0]}, {});
  says("for the operator Average", named, {.op = hvd::Sum, .gradient_predivide_factor = 2});
  says("must be at least 1", named, {.backward_passes_per_step = 0});
  says("is in two groups", named, {.groups = {{"0.bias"}, {"0.bias"}}});
  says("a group has no parameter \"y\"", named, {.groups = {{"y"}}});
  hvd::DistributedOptimizer optimizer(sgd, named);
  model->forward(torch::ones({1, 6})).sum().backward();
  EXPECT_THAT([&] { optimizer.zero_grad(); },
              ThrowsMessage<InvalidArgument>(HasSubstr("call step() or synchronize() first")));
  EXPECT_THAT(
      [&] {
        model->forward(torch::ones({1, 6})).sum().backward();
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("got a gradient more than 1 times before step()")));
  optimizer.step();
}

}  // namespace
}  // namespace optimizer_ranks_test
}  // namespace lockstep::compat::horovod

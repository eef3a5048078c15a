// Parameters whose storage, dtype or layout is replaced under a wrapper, as torch::load() and Module::to()
// do: libtorch gives them new gradient accumulators. The expected values are those of one process on the
// whole batch that does the same.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <functional>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/parallel/ddp/distributed_data_parallel.h"
#include "testing/ranks.h"

namespace lockstep::loaded_models {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr int BATCH = 12;
constexpr auto DOUBLE = at::kDouble;

struct LoadableImpl : torch::nn::Module {
  explicit LoadableImpl(int seed) {
    torch::manual_seed(seed);
    conv = register_module("conv", torch::nn::Conv2d(2, 3, 3));
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({3})));
    fc = register_module("fc", torch::nn::Linear(3, 2));
    to(DOUBLE);
  }
  torch::Tensor forward(const torch::Tensor& x) { return fc(norm(torch::tanh(conv(x)).mean({2, 3}))); }
  torch::nn::Conv2d conv{nullptr};
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear fc{nullptr};
};
TORCH_MODULE(Loadable);

torch::Tensor input() {
  torch::manual_seed(9);
  return torch::randn({BATCH, 2, 5, 5}, DOUBLE);
}

torch::Tensor share_of(const torch::Tensor& batch, const ProcessGroup& group) {
  const int part = BATCH / group.size();
  return batch.narrow(0, group.rank() * part, part);
}

std::string saved_model(int seed, bool channels_last = false) {
  Loadable net(seed);
  if (channels_last) net->conv->weight.set_data(net->conv->weight.contiguous(at::MemoryFormat::ChannelsLast));
  std::ostringstream file;
  torch::save(net, file);
  return file.str();
}

void load(Loadable& net, const std::string& bytes) {
  std::istringstream file(bytes);
  torch::load(net, file);
}

using Change = std::function<void(Loadable& net)>;
using Forward = std::function<torch::Tensor(const torch::Tensor&)>;

// Steps before the change, and after it.
void train(Loadable& net, const Forward& forward, const torch::Tensor& x, const Change& change,
           bool to_none) {
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (int step = 0; step < 4; ++step) {
    if (step == 2) change(net);
    optimizer.zero_grad(to_none);
    forward(x).pow(2).mean().backward();
    optimizer.step();
  }
}

void expect_close(const Loadable& net, const Loadable& expected, const std::string& what) {
  for (const auto& item : expected->named_parameters()) {
    const torch::Tensor own = net->named_parameters()[item.key()];
    EXPECT_TRUE(torch::allclose(own, item.value(), 1e-10, 1e-12)) << what << " " << item.key();
    EXPECT_TRUE(torch::allclose(own.grad(), item.value().grad(), 1e-10, 1e-12)) << what << " " << item.key();
  }
}

RANKS_TEST(LoadedModels, TrainOnAsInOneProcess, Ranks(1, 2, 3, 4)) {
  torch::set_num_threads(1);
  const std::string file = saved_model(/*seed=*/77);
  const std::string file_of_other_strides = saved_model(/*seed=*/77, /*channels_last=*/rank() == 0);
  const std::vector<std::pair<std::string, Change>> changes = {
      {"load", [&](Loadable& net) { load(net, file); }},
      {"load other strides on rank 0", [&](Loadable& net) { load(net, file_of_other_strides); }},
      {"to another dtype and back",
       [](Loadable& net) {
         net->to(at::kFloat);
         net->to(DOUBLE);
       }},
      {"load part", [](Loadable& net) {
         std::stringstream part;
         torch::save(Loadable(5)->fc, part);
         torch::load(net->fc, part);
       }}};
  for (const auto& [name, change] : changes) {
    for (const bool to_none : {true, false}) {
      for (const bool unused : {true, false}) {
        Loadable alone(0);
        train(
            alone, [&](const torch::Tensor& x) { return alone->forward(x); }, input(), change, to_none);
        Loadable net(rank());
        DistributedDataParallel ddp(net, {.process_group = world(), .find_unused_parameters = unused});
        train(
            net, [&](const torch::Tensor& x) { return ddp->forward(x); }, share_of(input(), world()), change,
            to_none);
        expect_close(net, alone, name);
        EXPECT_EQ(ddp.stats().reductions, 4u) << name;
      }
    }
  }
}

// The buckets are planned anew after the first backward, when rank 0's parameters have other strides than
// those of its peers.
RANKS_TEST(LoadedModels, OtherStridesOnOneRankBeforeTheFirstBackwardDoNotShow, Ranks(2, 3)) {
  torch::set_num_threads(1);
  Loadable alone(0);
  load(alone, saved_model(/*seed=*/78));
  Loadable net(rank());
  DistributedDataParallel ddp(net, {.process_group = world(), .bucket_cap_mb = 1e-4});
  load(net, saved_model(/*seed=*/78, /*channels_last=*/rank() == 0));
  const Change none = [](Loadable&) {};
  for (const bool to_none : {true, false}) {
    train(
        alone, [&](const torch::Tensor& x) { return alone->forward(x); }, input(), none, to_none);
    train(
        net, [&](const torch::Tensor& x) { return ddp->forward(x); }, share_of(input(), world()), none,
        to_none);
    expect_close(net, alone, "other strides");
  }
}

// A graph that was recorded before belongs to the old accumulators.
RANKS_TEST(LoadedModels, GraphsFromBeforeALoadAreAveragedToo, Ranks(1, 2, 3)) {
  torch::set_num_threads(1);
  Loadable alone(0);
  Loadable net(rank());
  DistributedDataParallel ddp(net, {.process_group = world()});
  const torch::Tensor own = share_of(input(), world());
  const auto loss_of = [](const torch::Tensor& y) { return y.pow(2).mean(); };
  alone->zero_grad();
  loss_of(alone->forward(input())).backward();
  const torch::Tensor before = loss_of(ddp.forward(own));
  {  // as torch::load() does; a bias, because libtorch refuses a graph whose saved tensors have changed
    const torch::NoGradGuard no_grad;
    net->fc->bias.set_(net->fc->bias.detach().clone());
  }
  ddp.forward(own);  // hooks the new accumulator; the old graph lives
  before.backward();
  expect_close(net, alone, "an older graph");
  alone->zero_grad();
  net->zero_grad();
  loss_of(alone->forward(input())).backward();
  loss_of(ddp.forward(own)).backward();
  expect_close(net, alone, "a newer graph");
}

RANKS_TEST(LoadedModels, AnotherDtypeIsStillNamed, Ranks(1)) {
  Loadable net(0);
  DistributedDataParallel ddp(net, {.process_group = world()});
  net->fc->to(at::kFloat);
  EXPECT_THAT([&] { ddp.forward(share_of(input(), world())); },
              ThrowsMessage<InvalidArgument>(HasSubstr("\"fc.weight\" was Double")));
}

}  // namespace
}  // namespace lockstep::loaded_models

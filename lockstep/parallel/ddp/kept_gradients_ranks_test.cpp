// Gradients that the program keeps: a .grad held over zero_grad(), as gradient surgery does, and tensors of
// its own that it has set as .grad. The expected values are those of one process on the whole batch.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "lockstep/parallel/ddp/distributed_data_parallel.h"
#include "testing/ranks.h"

namespace lockstep::kept_gradients {
namespace {

constexpr int BATCH = 12;
constexpr int WIDTH = 160;  // 200 KiB of gradient: large enough to be made in its bucket
constexpr auto DOUBLE = at::kDouble;

torch::nn::Sequential make_net(int seed) {
  torch::manual_seed(seed);
  torch::nn::Sequential net(torch::nn::Linear(WIDTH, WIDTH), torch::nn::Tanh(),
                            torch::nn::Linear(WIDTH, WIDTH), torch::nn::Tanh(), torch::nn::Linear(WIDTH, 2));
  net->to(DOUBLE);
  return net;
}

torch::Tensor batch() {
  torch::manual_seed(3);
  return torch::randn({BATCH, WIDTH}, DOUBLE);
}

torch::Tensor share_of(const ProcessGroup& group) {
  const int part = BATCH / group.size();
  return batch().narrow(0, group.rank() * part, part);
}

struct Trial {
  explicit Trial(const ProcessGroup& group, const DistributedDataParallelOptions& options = {})
      : net(make_net(group.rank())), alone(make_net(0)), x(share_of(group)), ddp(net, with(options, group)) {
    torch::set_num_threads(1);
  }
  static DistributedDataParallelOptions with(DistributedDataParallelOptions options,
                                             const ProcessGroup& group) {
    options.process_group = group;
    return options;
  }
  void backward(double factor) { (ddp.forward(x).pow(2).mean() * factor).backward(); }
  std::vector<torch::Tensor> expected(double factor) {
    alone->zero_grad();
    (alone->forward(batch()).pow(2).mean() * factor).backward();
    std::vector<torch::Tensor> all;
    for (const auto& parameter : alone->parameters()) all.push_back(parameter.grad().clone());
    return all;
  }
  std::vector<torch::Tensor> gradients() const {
    std::vector<torch::Tensor> all;
    for (const auto& parameter : net->parameters()) all.push_back(parameter.grad());
    return all;
  }
  static void expect_equal(const std::vector<torch::Tensor>& found,
                           const std::vector<torch::Tensor>& expected, const std::string& what) {
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_TRUE(torch::allclose(found[i], expected[i].view_as(found[i]), 1e-10, 1e-12)) << what << " " << i;
    }
  }

  torch::nn::Sequential net, alone;
  torch::Tensor x;
  DistributedDataParallel<torch::nn::SequentialImpl> ddp;
};

RANKS_TEST(KeptGradients, StayWhatTheyWereAfterZeroGrad, Ranks(1, 2, 3, 4)) {
  for (const double cap : {25.0, 1e-4}) {
    Trial trial(world(), {.bucket_cap_mb = cap});
    std::vector<std::vector<torch::Tensor>> kept;
    for (int task = 1; task <= 5; ++task) {
      trial.net->zero_grad();
      trial.backward(task);
      kept.push_back(trial.gradients());
    }
    for (int task = 1; task <= 5; ++task)
      Trial::expect_equal(kept[task - 1], trial.expected(task), "task " + std::to_string(task));
  }
}

RANKS_TEST(KeptGradients, MayBeViews, Ranks(1, 2, 3)) {
  Trial trial(world());
  std::vector<std::vector<torch::Tensor>> kept(6);
  for (int task = 1; task <= 5; ++task) {
    trial.net->zero_grad();
    trial.backward(task);
    for (const auto& grad : trial.gradients())
      kept[task].push_back(task % 2 == 0 ? grad.detach() : grad.flatten());
  }
  for (int task = 1; task <= 5; ++task)
    Trial::expect_equal(kept[task], trial.expected(task), "task " + std::to_string(task));
}

// One of many: its bucket moves, and the gradients of the others are right.
RANKS_TEST(KeptGradients, MayBeOne, Ranks(1, 2, 3)) {
  Trial trial(world());
  std::vector<torch::Tensor> kept;
  for (int task = 1; task <= 4; ++task) {
    trial.net->zero_grad();
    trial.backward(task);
    kept.push_back(trial.gradients()[2]);
    Trial::expect_equal(trial.gradients(), trial.expected(task), "task " + std::to_string(task));
  }
  for (int task = 1; task <= 4; ++task)
    EXPECT_TRUE(torch::allclose(kept[task - 1], trial.expected(task)[2], 1e-10, 1e-12)) << task;
}

RANKS_TEST(KeptGradients, StayWithoutCommunicationAndWithoutUseToo, Ranks(1, 2, 3)) {
  const torch::Tensor w = torch::ones({4}, torch::requires_grad());
  const torch::Tensor idle = torch::ones({4}, torch::requires_grad());
  DistributedDataParallel ddp(NamedTensors{{"w", w}, {"idle", idle}}, {},
                              {.process_group = world(), .find_unused_parameters = true});
  ddp.forward([&] { return (w + idle).sum(); }).backward();
  const torch::Tensor kept = w.grad();
  const torch::Tensor kept_idle = idle.grad();
  for (const auto* tensor : {&w, &idle}) tensor->mutable_grad().reset();
  {
    const auto guard = ddp.no_sync();
    ddp.forward([&] { return (w * 10).sum(); }).backward();
  }
  EXPECT_TRUE(torch::equal(kept, torch::ones({4})));
  w.mutable_grad().reset();
  ddp.forward([&] { return (w * 100).sum(); }).backward();
  EXPECT_TRUE(torch::equal(w.grad(), torch::full({4}, 100)));
  EXPECT_TRUE(torch::equal(kept, torch::ones({4})));
  EXPECT_TRUE(torch::equal(kept_idle, torch::ones({4})));  // contributed zeros
}

// Handles of a .grad that is still the parameter's see what is added to it, as in libtorch alone.
RANKS_TEST(KeptGradients, FollowWhatIsAddedInPlace, Ranks(1, 2, 3)) {
  Trial trial(world());
  trial.backward(1);
  const auto kept = trial.gradients();
  trial.backward(2);
  Trial::expect_equal(kept, trial.expected(3), "added");
  torch::optim::SGD(trial.net->parameters(), 0.1).zero_grad(/*set_to_none=*/false);
  trial.backward(4);
  Trial::expect_equal(kept, trial.expected(4), "zeroed in place");
}

// Nobody keeps anything: each gradient is copied once at most, and its place stays.
RANKS_TEST(KeptGradients, CostNothingWhereNoneAreKept, Ranks(1, 2)) {
  Trial trial(world());
  torch::optim::Adam optimizer(trial.net->parameters());
  std::vector<const void*> places;
  for (int step = 0; step < 6; ++step) {
    if (step % 2 == 0) {
      optimizer.zero_grad();
    } else {
      trial.net->zero_grad(/*set_to_none=*/step == 3);
    }
    trial.backward(1);
    torch::nn::utils::clip_grad_norm_(trial.net->parameters(), 1.0);
    optimizer.step();
    std::vector<const void*> now;
    for (const auto& grad : trial.gradients()) now.push_back(grad.const_data_ptr());
    if (step > 0) EXPECT_EQ(now, places) << step;  // the first backward tells the order of the buckets
    places = now;
  }
}

// One flat tensor of all gradients, of which each .grad is a view.
torch::Tensor set_flat_gradients(const torch::nn::Sequential& net) {
  std::int64_t count = 0;
  for (const auto& parameter : net->parameters()) count += parameter.numel();
  const torch::Tensor flat = torch::zeros({count}, DOUBLE);
  std::int64_t offset = 0;
  for (const auto& parameter : net->parameters()) {
    parameter.mutable_grad() = flat.narrow(0, offset, parameter.numel()).view_as(parameter);
    offset += parameter.numel();
  }
  return flat;
}

RANKS_TEST(KeptGradients, OfTheProgramItselfReceiveTheAverage, Ranks(1, 2, 3, 4)) {
  for (const bool unused : {false, true}) {
    Trial trial(world(), {.bucket_cap_mb = 0.3, .find_unused_parameters = unused});
    const torch::Tensor flat = set_flat_gradients(trial.net);
    const auto own = trial.gradients();
    for (int task = 1; task <= 4; ++task) {
      flat.zero_();
      trial.backward(task);
      Trial::expect_equal(trial.gradients(), trial.expected(task), "task " + std::to_string(task));
      Trial::expect_equal(own, trial.expected(task), "own, task " + std::to_string(task));
      std::vector<torch::Tensor> parts;
      for (const auto& grad : trial.expected(task)) parts.push_back(grad.flatten());
      Trial::expect_equal({flat}, {torch::cat(parts)}, "flat, task " + std::to_string(task));
    }
  }
}

// Set anew between forward and backward; kept by handles alone; and one that nothing is added to.
RANKS_TEST(KeptGradients, OfTheProgramItselfMayBeSetInEveryStep, Ranks(1, 2, 3)) {
  Trial trial(world());
  for (int task = 1; task <= 3; ++task) {
    const torch::Tensor loss = trial.ddp.forward(trial.x).pow(2).mean();
    const torch::Tensor flat = set_flat_gradients(trial.net);
    loss.backward();
    std::vector<torch::Tensor> parts;
    for (const auto& grad : trial.expected(1)) parts.push_back(grad.flatten());
    Trial::expect_equal({flat}, {torch::cat(parts)}, "task " + std::to_string(task));
  }
  trial.net->zero_grad();
  const torch::Tensor own = torch::zeros_like(trial.net->parameters()[0]);
  trial.net->parameters()[0].mutable_grad() = own;
  trial.backward(2);
  Trial::expect_equal({own}, {trial.expected(2)[0]}, "one of many");
}

RANKS_TEST(KeptGradients, OfTheProgramItselfReceiveWhatOtherRanksComputed, Ranks(2, 3)) {
  const torch::Tensor w = torch::ones({4}, torch::requires_grad());
  const torch::Tensor other = torch::ones({4}, torch::requires_grad());
  const torch::Tensor own = torch::zeros({4});
  w.mutable_grad() = own;
  DistributedDataParallel ddp(NamedTensors{{"w", w}, {"other", other}}, {},
                              {.process_group = world(), .find_unused_parameters = true});
  for (int step = 0; step < 2; ++step) {
    own.zero_();
    ddp.forward([&] { return rank() == 0 ? (w * other).sum() : other.sum(); }).backward();
    EXPECT_TRUE(torch::equal(own, torch::full({4}, 1.0 / size()))) << own;
  }
}

}  // namespace
}  // namespace lockstep::kept_gradients

// DistributedDataParallel in a Join, against the formula: SGD with the averages of whoever has inputs.
#include <ATen/ATen.h>
#include <torch/nn/modules/batchnorm.h>

#include "lockstep/base/error.h"
#include "lockstep/job/join.h"
#include "lockstep/parallel/ddp/distributed_data_parallel.h"
#include "lockstep/tensor/collectives.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Two parameters, one of which only odd ranks use; the gradient of rank r at step i is known.
struct Trial {
  explicit Trial(const ProcessGroup& of, DistributedDataParallelOptions options = {})
      : group(of), ddp({{"w", w}, {"v", v}}, {}, with_group(options)) {}

  DistributedDataParallelOptions with_group(DistributedDataParallelOptions options) const {
    options.process_group = group;
    options.bucket_cap_mb = 1e-5;  // a bucket for each
    return options;
  }
  static double gradient(int rank, int step) { return 0.25 * (rank + 1) - 0.125 * step; }
  void step(int i, bool with_v = true) {
    if (w.grad().defined()) w.grad().zero_();
    if (v.grad().defined()) v.grad().zero_();
    const double g = gradient(group.rank(), i);
    ddp.forward([&] { return with_v ? (w * g).sum() + (v * 2 * g).sum() : (w * g).sum(); }).backward();
    const at::NoGradGuard no_grad;
    w -= w.grad();
    v -= v.grad().defined() ? v.grad() : at::zeros_like(v);
  }

  ProcessGroup group;
  at::Tensor w = at::zeros({5}, at::kDouble).requires_grad_(true);
  at::Tensor v = at::zeros({3}, at::kDouble).requires_grad_(true);
  DistributedDataParallel<void> ddp;
};

// What w becomes if rank r takes steps(r) steps.
template <typename Steps> double expected(int ranks, bool by_initial, const Steps& steps) {
  double w = 0;
  for (int i = 0; i < 100; ++i) {
    double sum = 0;
    int active = 0;
    for (int r = 0; r < ranks; ++r) {
      if (i >= steps(r)) continue;
      sum += Trial::gradient(r, i);
      ++active;
    }
    if (active > 0) w -= sum / (by_initial ? ranks : active);
  }
  return w;
}

void expect_all(const at::Tensor& tensor, double value) {
  EXPECT_TRUE(at::allclose(tensor, at::full_like(tensor, value), 1e-13, 1e-13)) << tensor << " not " << value;
}

RANKS_TEST(JoinDdp, AveragesWhoHasInputs, Ranks(1, 2, 3, 4), Backends("shm", "tcp")) {
  for (const bool ascending : {true, false}) {
    for (const bool by_initial : {true, false}) {
      const auto steps = [&](int r) { return 2 + 3 * (ascending ? r : size() - 1 - r); };
      Trial trial(world());
      join({&trial.ddp},
           [&] {
             for (int i = 0; i < steps(rank()); ++i) trial.step(i);
           },
           {.divide_by_initial_world_size = by_initial});
      expect_all(trial.w, expected(size(), by_initial, steps));
      expect_all(trial.v, 2 * expected(size(), by_initial, steps));
      trial.step(7);  // and on, together
      expect_all(trial.w, expected(size(), by_initial, steps) - (0.25 * (size() + 1) / 2 - 0.125 * 7));
    }
  }
}

// A rank without a single input; parameters that some do not use; a communication hook.
RANKS_TEST(JoinDdp, WorksWithUnusedParametersAndHooks, Ranks(2, 3)) {
  const auto steps = [](int r) { return r == 0 ? 0 : 4; };
  Trial trial(world(), {.find_unused_parameters = true});
  trial.ddp.register_comm_hook("bf16_compress");  // exact for these numbers
  join({&trial.ddp},
       [&] {
         for (int i = 0; i < steps(rank()); ++i) trial.step(i, /*with_v=*/i != 1);
       },
       {.divide_by_initial_world_size = size() == 2});
  if (size() == 2) {
    double w = 0;
    for (int i = 0; i < 4; ++i) w -= Trial::gradient(1, i) / 2;
    expect_all(trial.w, w);
    expect_all(trial.v, 2 * (w + Trial::gradient(1, 1) / 2));
  } else {
    EXPECT_TRUE(trial.w.ne(0).all().item<bool>());
  }
  const at::Tensor of_rank_0 = trial.w.detach().clone();
  broadcast(of_rank_0, 0);
  EXPECT_TRUE(of_rank_0.equal(trial.w));
}

// Accumulation: only the passes that are averaged count, however many others there are.
RANKS_TEST(JoinDdp, LeavesNoSyncAlone, Ranks(2, 3)) {
  Trial trial(world());
  join({&trial.ddp}, [&] {
    for (int i = 0; i < rank() + 1; ++i) {
      for (int micro = 0; micro < 2 + rank(); ++micro) {
        const auto guard = trial.ddp.no_sync();
        trial.ddp.forward([&] { return trial.w.sum() * 0 + trial.v.sum() * 0; }).backward();
      }
      trial.step(i);
    }
  });
  expect_all(trial.w, expected(size(), true, [](int r) { return r + 1; }));
}

// Buffers come from the largest rank that has inputs; in the end all are those of the last.
RANKS_TEST(JoinDdp, SharesTheNewestBuffers, Ranks(2, 3)) {
  torch::nn::BatchNorm1d norm(torch::nn::BatchNormOptions(2).momentum(1.0));
  DistributedDataParallel ddp(norm, {.process_group = world()});
  const auto input = [&](int r, int i) {
    return at::tensor({0.0F, 1.0F, 2.0F, 5.0F}).view({2, 2}) + 10 * r + i;
  };
  const int steps = 2 + (size() - 1 - rank());  // rank 0 takes the most
  join({&ddp}, [&] {
    for (int i = 0; i < steps; ++i) {
      ddp->forward(input(rank(), i)).sum().backward();
      EXPECT_TRUE(at::allclose(norm->running_mean, at::tensor({1.0F, 3.0F}) + 10 * rank() + i));
    }
  });
  EXPECT_TRUE(at::allclose(norm->running_mean, at::tensor({1.0F, 3.0F}) + size()));
  EXPECT_EQ(norm->num_batches_tracked.item<std::int64_t>(), size() + 1);
}

RANKS_TEST(JoinDdp, ThrowsEarlyAndGoesOn, Ranks(2, 3, 4), Backends("shm", "tcp")) {
  Trial trial(world());
  const auto loop = [&] {
    for (int i = 0; i < (rank() == 1 ? 2 : 5); ++i) trial.step(i);
  };
  EXPECT_THAT([&] { join({&trial.ddp}, loop, {.throw_on_early_termination = true}); },
              ThrowsMessage<Mismatch>(HasSubstr("rank 1 has no more inputs")));
  const auto two = [](int) { return 2; };
  expect_all(trial.w, expected(size(), true, two));
  trial.step(2);
  expect_all(trial.w, expected(size(), true, [](int) { return 3; }));
}

// Rank 0 evaluates within the join while others train: nothing is communicated by that.
RANKS_TEST(JoinDdp, LetsOneRankEvaluate, Ranks(2, 3)) {
  Trial trial(world());
  join({&trial.ddp}, [&] {
    for (int i = 0; i < 2 + rank(); ++i) {
      trial.step(i);
      if (rank() != 0) continue;
      const at::NoGradGuard no_grad;
      trial.ddp.forward([&] { return trial.w.sum(); });
    }
  });
  expect_all(trial.w, expected(size(), true, [](int r) { return r + 2; }));
}

}  // namespace
}  // namespace lockstep

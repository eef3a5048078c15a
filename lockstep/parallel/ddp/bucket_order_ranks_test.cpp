// Buckets in the order in which gradients really arrive: rank 0's, on every rank, whatever the others saw.
// Only exact values.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "lockstep/job/groups.h"
#include "lockstep/parallel/ddp/distributed_data_parallel.h"
#include "lockstep/tensor/collectives.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

constexpr int PARAMETERS = 7;
constexpr int COUNT = 16;  // elements of each: 64 bytes
constexpr double MIB = 1024.0 * 1024.0;

struct Leaves {
  std::vector<torch::Tensor> w;
  NamedTensors named;
  Leaves() {
    for (int i = 0; i < PARAMETERS; ++i) {
      w.push_back(torch::zeros({COUNT}, torch::requires_grad()));
      named.emplace_back("w" + std::to_string(i), w.back());
    }
  }
  // Autograd runs what was computed last first: gradients arrive in the reverse of `order`.
  torch::Tensor loss(const std::vector<int>& order, const std::vector<torch::Tensor>& slopes) const {
    torch::Tensor sum = torch::zeros({});
    for (const int i : order) sum = sum + (w[i] * slopes[i]).sum();
    return sum;
  }
};

std::vector<int> shuffled(std::mt19937& random) {
  std::vector<int> order(PARAMETERS);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  return order;
}

// With a cap of two parameters.
std::string table_of(const std::vector<int>& arrivals) {
  std::string text;
  for (int i = 0; i < PARAMETERS; i += 2) {
    const bool two = i + 1 < PARAMETERS;
    text += "#" + std::to_string(i / 2) + " float32 " + (two ? "128" : "64") + " bytes: w" +
            std::to_string(arrivals[i]);
    if (two) text += " w" + std::to_string(arrivals[i + 1]);
    text += "\n";
  }
  return text;
}

DistributedDataParallelOptions two_each(const ProcessGroup& group) {
  return {.process_group = group, .bucket_cap_mb = 128 / MIB};
}

RANKS_TEST(BucketOrder, IsThatOfRankZerosFirstBackwardOnEveryRank, Ranks(1, 2, 3, 4), EveryBackend()) {
  const Leaves leaves;
  DistributedDataParallel ddp(leaves.named, {}, two_each(world()));
  EXPECT_EQ(ddp.bucket_table(), table_of({6, 5, 4, 3, 2, 1, 0}));
  std::mt19937 of_rank_zero(0);
  std::vector<int> first = shuffled(of_rank_zero);
  std::reverse(first.begin(), first.end());
  std::mt19937 random(rank());  // another order on each rank and at each step
  for (int step = 1; step <= 20; ++step) {
    std::vector<torch::Tensor> slopes;
    for (int i = 0; i < PARAMETERS; ++i)
      slopes.push_back(torch::full({COUNT}, 1.0 * (rank() + 1) * (i + 1) * step));
    for (const auto& w : leaves.w) w.mutable_grad().reset();
    ddp.forward([&] { return leaves.loss(shuffled(random), slopes); }).backward();
    ASSERT_EQ(ddp.bucket_table(), table_of(first));
    for (int i = 0; i < PARAMETERS; ++i) {
      const auto mean = torch::full({COUNT}, (size() + 1) / 2.0 * (i + 1) * step);
      ASSERT_TRUE(torch::equal(leaves.w[i].grad(), mean)) << i << " in step " << step;
    }
  }
  EXPECT_EQ(ddp.stats().rebuilds, 1u);
  EXPECT_EQ(ddp.stats().bucket_bytes, PARAMETERS * COUNT * sizeof(float));
}

// The order is told by the group's first rank, whatever its number in the job.
RANKS_TEST(BucketOrder, IsToldByTheFirstRankOfAGroupWithoutRankZero, Ranks(3, 4)) {
  const ProcessGroup group = new_group({1, 2});
  if (!group.is_member()) return;
  const Leaves leaves;
  DistributedDataParallel ddp(leaves.named, {}, two_each(group));
  const std::vector<torch::Tensor> slopes(PARAMETERS, torch::ones({COUNT}));
  ddp.forward([&] { return leaves.loss({0, 2, 4, 6, 1, 3, 5}, slopes); }).backward();
  EXPECT_EQ(ddp.bucket_table(), table_of({5, 3, 1, 6, 4, 2, 0}));
}

torch::Tensor random_slope(int rank, int parameter) {
  torch::manual_seed(100 * rank + parameter);
  return torch::randn({COUNT});
}

// ((0+1)+(2+3)) / 4, as the collectives promise.
torch::Tensor mean_in_tree(int parameter, int ranks) {
  std::vector<torch::Tensor> level;
  for (int r = 0; r < ranks; ++r) level.push_back(random_slope(r, parameter));
  while (level.size() > 1) {
    std::vector<torch::Tensor> next;
    for (std::size_t i = 0; i + 1 < level.size(); i += 2) next.push_back(level[i] + level[i + 1]);
    if (level.size() % 2 == 1) next.push_back(level.back());
    level = next;
  }
  return level.front() / ranks;
}

RANKS_TEST(BucketOrder, DoesNotShowInTheBits, Ranks(1, 2, 3, 4)) {
  std::vector<torch::Tensor> slopes;
  for (int i = 0; i < PARAMETERS; ++i) slopes.push_back(random_slope(rank(), i));
  for (const double bytes : {64.0, 128.0, 256.0, 1e6}) {
    const Leaves leaves;
    DistributedDataParallel ddp(leaves.named, {}, {.process_group = world(), .bucket_cap_mb = bytes / MIB});
    for (int step = 0; step < 3; ++step) {
      for (const auto& w : leaves.w) w.mutable_grad().reset();
      ddp.forward([&] { return leaves.loss({2, 5, 0, 6, 1, 3, 4}, slopes); }).backward();
      for (int i = 0; i < PARAMETERS; ++i)
        EXPECT_TRUE(torch::equal(leaves.w[i].grad(), mean_in_tree(i, size()))) << i;
    }
    EXPECT_EQ(ddp.stats().rebuilds, bytes > 1e5 ? 0u : 1u);
  }
}

RANKS_TEST(BucketOrder, LetsAllBucketsButTheLastStartEarly, Ranks(1, 2, 3)) {
  const Leaves leaves;
  DistributedDataParallel ddp(leaves.named, {}, two_each(world()));
  const std::vector<torch::Tensor> slopes(PARAMETERS, torch::ones({COUNT}));
  std::vector<int> order = {6, 5, 4, 3,
                            2, 1, 0};  // the worst one for buckets in reverse order of registration
  ddp.forward([&] { return leaves.loss(order, slopes); }).backward();
  EXPECT_EQ(ddp.stats().buckets_overlapped, 0u);
  for (int step = 1; step <= 3; ++step) {
    ddp.forward([&] { return leaves.loss(order, slopes); }).backward();
    EXPECT_EQ(ddp.stats().buckets_overlapped, 3u * step);
    EXPECT_EQ(leaves.w[0].grad()[0].item<float>(), 1 + step);  // kept from step to step: nothing was copied
  }
}

RANKS_TEST(BucketOrder, StaysWithUnusedParameters, Ranks(1, 2, 3)) {
  const Leaves leaves;
  auto options = two_each(world());
  options.find_unused_parameters = true;
  DistributedDataParallel ddp(leaves.named, {}, options);
  const std::vector<torch::Tensor> slopes(PARAMETERS, torch::ones({COUNT}));
  for (int step = 0; step < 3; ++step) {
    ddp.forward([&] { return leaves.loss({6, 5, 4, 3, 2, 1, 0}, slopes); }).backward();
  }
  EXPECT_EQ(ddp.bucket_table(), table_of({6, 5, 4, 3, 2, 1, 0}));
  EXPECT_EQ(ddp.stats().rebuilds, 0u);
}

RANKS_TEST(BucketOrder, KeepsWhatEarlierLocalPassesLeft, Ranks(1, 2, 3)) {
  const Leaves leaves;
  DistributedDataParallel ddp(leaves.named, {}, two_each(world()));
  std::vector<torch::Tensor> slopes;
  for (int i = 0; i < PARAMETERS; ++i) slopes.push_back(torch::full({COUNT}, 1.0 * (rank() + 1) * (i + 1)));
  for (int step = 1; step <= 2; ++step) {
    {
      auto guard = ddp.no_sync();
      ddp.forward([&] { return leaves.loss({6, 5, 4, 3, 2, 1, 0}, slopes); }).backward();
    }
    ddp.forward([&] { return leaves.loss({0, 1, 2, 3, 4, 5, 6}, slopes); }).backward();
    for (int i = 0; i < PARAMETERS; ++i) {
      EXPECT_EQ(leaves.w[i].grad()[COUNT - 1].item<float>(), (size() + 1) * (i + 1));
      leaves.w[i].mutable_grad().reset();
    }
    ddp.forward([&] { return leaves.loss({3, 1, 2, 0, 4, 5, 6}, slopes); }).backward();
    for (int i = 0; i < PARAMETERS; ++i) {
      EXPECT_FLOAT_EQ(leaves.w[i].grad()[0].item<float>(), (size() + 1) / 2.0F * (i + 1));
      leaves.w[i].mutable_grad().reset();
    }
  }
}

RANKS_TEST(BucketOrder, IsToldToTheCommunicationHook, Ranks(1, 2)) {
  const Leaves leaves;
  DistributedDataParallel ddp(leaves.named, {}, two_each(world()));
  std::vector<std::string> names;
  ddp.register_comm_hook("looks", [&](const GradBucket& bucket) {
    const auto gradients = bucket.gradients();
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      const std::string& name = bucket.parts()[i].name;
      names.push_back(name);
      EXPECT_EQ(gradients[i][0].item<int>(), name.back() - '0');
    }
    return HookStep();
  });
  std::vector<torch::Tensor> slopes;
  for (int i = 0; i < PARAMETERS; ++i) slopes.push_back(torch::full({COUNT}, i));
  for (int step = 0; step < 2; ++step) {
    names.clear();
    for (const auto& w : leaves.w) w.mutable_grad().reset();
    ddp.forward([&] { return leaves.loss({0, 3, 1, 4, 2, 6, 5}, slopes); }).backward();
  }
  EXPECT_THAT(names, ::testing::ElementsAre("w5", "w6", "w2", "w4", "w1", "w3", "w0"));
}

}  // namespace
}  // namespace lockstep

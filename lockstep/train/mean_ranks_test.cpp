#include "lockstep/train/mean.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <cmath>

#include "lockstep/base/error.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

RANKS_TEST(MeanAcrossRanks, IsDetachedAndLeavesTheMetricAlone, Ranks(1, 2, 3, 4), EveryBackend()) {
  const double mean = (size() - 1) / 2.0;
  const at::Tensor metric = torch::full({2, 3}, static_cast<float>(rank()), torch::requires_grad());
  const at::Tensor result = mean_across_ranks(metric, world());
  EXPECT_FALSE(result.requires_grad());
  EXPECT_TRUE(result.equal(torch::full({2, 3}, static_cast<float>(mean))));
  EXPECT_TRUE(metric.equal(torch::full({2, 3}, static_cast<float>(rank()))));
  EXPECT_EQ(mean_across_ranks(torch::tensor(rank()), world()).item<double>(), mean);  // int64
  EXPECT_EQ(mean_across_ranks(static_cast<double>(rank()), world()), mean);
}

RANKS_TEST(MeanAcrossRanks, WeighsSamplesNotRanks, Ranks(1, 2, 3, 4), EveryBackend()) {
  Mean mean;
  EXPECT_TRUE(std::isnan(mean.across_ranks(world())));
  EXPECT_TRUE(std::isnan(mean.of_this_rank()));
  // Rank r has r batches of value r and weight 2: the mean is the sum of r^2 over the sum of r.
  for (int i = 0; i < rank(); ++i) mean.add(rank(), 2);
  mean.add(torch::tensor(NAN), 0);
  const double n = size() - 1;
  const double expected = n == 0 ? NAN : (2 * n + 1) / 3;
  if (n == 0) {
    EXPECT_TRUE(std::isnan(mean.across_ranks(world())));
  } else {
    EXPECT_NEAR(mean.across_ranks(world()), expected, 1e-15);
  }
  EXPECT_EQ(mean.weight(), 2 * rank());
  if (rank() > 0) EXPECT_EQ(mean.of_this_rank(), rank());
  mean.reset();
  EXPECT_EQ(mean.weight(), 0);
  EXPECT_THROW(mean.add(1, -1), InvalidArgument);
}

}  // namespace
}  // namespace lockstep

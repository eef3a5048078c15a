#include "lockstep/schedules/micro_batches.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>

#include "lockstep/base/error.h"

namespace lockstep::micro_batches_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(MicroBatches, DifferByAtMostOneRow) {
  EXPECT_THAT(micro_batch_sizes(8, 4), ElementsAre(2, 2, 2, 2));
  EXPECT_THAT(micro_batch_sizes(9, 4), ElementsAre(3, 2, 2, 2));
  for (std::int64_t batch = 1; batch <= 40; ++batch) {
    for (std::int64_t m = 1; m <= 12; ++m) {
      const auto sizes = micro_batch_sizes(batch, m);
      EXPECT_EQ(std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}), batch);
      EXPECT_EQ(sizes.size(), static_cast<std::size_t>(std::min(batch, m)));
      EXPECT_EQ(sizes.front(), (batch + std::min(batch, m) - 1) / std::min(batch, m));
      EXPECT_LE(sizes.front() - sizes.back(), 1);
      EXPECT_TRUE(std::is_sorted(sizes.rbegin(), sizes.rend()));
    }
  }
}

TEST(MicroBatches, OfASmallBatchAreFewer) {
  EXPECT_THAT(micro_batch_sizes(3, 4), ElementsAre(1, 1, 1));
  EXPECT_THAT(micro_batch_sizes(1, 1), ElementsAre(1));
}

TEST(MicroBatches, OfNothingAreRefused) {
  EXPECT_THAT([] { micro_batch_sizes(0, 4); },
              ThrowsMessage<InvalidArgument>(HasSubstr("a batch of 0 rows in 4 micro-batches")));
  EXPECT_THAT([] { micro_batch_sizes(4, 0); },
              ThrowsMessage<InvalidArgument>(HasSubstr("both are at least 1")));
}

}  // namespace
}  // namespace lockstep::micro_batches_test

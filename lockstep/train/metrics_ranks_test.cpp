#include "lockstep/train/metrics.h"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/job/groups.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::ThrowsMessage;
using ::testing::UnorderedElementsAre;

RANKS_TEST(Metrics, AreMeansOverSamplesAndSumsOverRanks, Ranks(1, 2, 3, 4), EveryBackend()) {
  Metrics metrics({.means = {"none"}, .sums = {"zero"}});
  // Rank r has r + 1 batches of 2 samples with loss r.
  for (int i = 0; i <= rank(); ++i) {
    metrics.add_mean("loss", at::full({1}, rank(), at::TensorOptions(at::kFloat).requires_grad(true)), 2);
    metrics.add_sum("correct", at::ones({3}, at::kLong).sum());
  }
  metrics.add_mean("loss", NAN, 0);
  const double n = size();
  const double ranks = n * (n + 1) / 2;                                   // sum of r + 1
  const double losses = (n - 1) * n * (2 * n - 1) / 6 + n * (n - 1) / 2;  // sum of r * (r + 1)
  const auto totals = metrics.across_ranks(world());
  EXPECT_EQ(totals.size(), 4);
  EXPECT_NEAR(totals.at("loss"), losses / ranks, 1e-15);
  EXPECT_EQ(totals.at("correct"), 3 * ranks);
  EXPECT_TRUE(std::isnan(totals.at("none")));
  EXPECT_EQ(totals.at("zero"), 0);
  EXPECT_EQ(metrics.of_this_rank().at("loss"), rank());
  EXPECT_EQ(metrics.of_this_rank().at("correct"), 3 * (rank() + 1));
  metrics.reset();
  EXPECT_EQ(metrics.across_ranks(world()).at("correct"), 0);
  EXPECT_TRUE(Metrics().across_ranks(world()).empty());
}

RANKS_TEST(Metrics, ComeInAnyOrderAndNumber, Ranks(1, 2, 3, 4), Backends("shm", "tcp")) {
  for (const int count : {1, 27, 28, 29, 100}) {
    Metrics metrics;
    for (int i = 0; i < count; ++i) {
      const int at = rank() % 2 == 0 ? i : count - 1 - i;
      metrics.add_sum(str("metric ", at), at);
    }
    const auto totals = metrics.across_ranks(world());
    ASSERT_EQ(totals.size(), count);
    for (int i = 0; i < count; ++i) EXPECT_EQ(totals.at(str("metric ", i)), i * size());
  }
}

RANKS_TEST(Metrics, HaveTheNamesOfTheConstructorOnARankWithoutSamples, Ranks(1, 2, 3, 4)) {
  Metrics metrics({.means = {"loss"}, .sums = {"images"}});
  if (rank() == 0) metrics.add_mean("loss", 0.5, 3).add_sum("images", 3);
  EXPECT_THAT(metrics.across_ranks(), UnorderedElementsAre(Pair("loss", 0.5), Pair("images", 3)));
}

// rank 2 has the names of rank 0; the hashes of ranks 1 and 3 lie on either side of theirs.
RANKS_TEST(Metrics, NameTheNameThatDiffers, Ranks(2, 3, 4), BackendsWithPeers()) {
  const auto refused = [&](const Metrics& metrics, const std::string& words) {
    EXPECT_THAT([&] { metrics.across_ranks(world()); },
                ThrowsMessage<Mismatch>(AllOf(HasSubstr("Metrics::across_ranks on group \"world\", rank "),
                                              HasSubstr(words), HasSubstr("give them to the constructor"))));
  };
  Metrics one;
  one.add_mean("loss", 1);
  if (rank() == 1) one.add_sum("correct", 1);
  refused(one, "rank 1 has the sum \"correct\", rank 0 has not");
  Metrics other;
  if (rank() != 1) other.add_mean("loss", 1);
  refused(other, "rank 0 has the mean \"loss\", rank 1 has not");
  Metrics kinds;
  if (rank() == 1) kinds.add_sum("loss", 1);
  if (rank() != 1) kinds.add_mean("loss", 1);
  refused(kinds, "rank 0 has the mean \"loss\", rank 1 has not");
  Metrics many;
  for (int i = 0; i < (rank() == 1 ? 40 : 10); ++i) many.add_sum(str(i), 1);
  refused(many, "rank 1 has the sum \"10\", rank 0 has not");
  EXPECT_EQ(Metrics().add_sum("ranks", 1).across_ranks(world()).at("ranks"), size());
}

RANKS_TEST(Metrics, RefuseWhatTheyCannotAdd, Ranks(2)) {
  Metrics metrics({.means = {"loss"}});
  EXPECT_THAT(
      [&] { metrics.add_sum("loss", 1); },
      ThrowsMessage<InvalidArgument>(HasSubstr("\"loss\" is a mean already; give the sum another name")));
  EXPECT_THAT([&] { metrics.add_mean("loss", 1, -1); },
              ThrowsMessage<InvalidArgument>(HasSubstr("the weight of \"loss\" is -1")));
  EXPECT_THAT([&] { metrics.add_mean("", 1); }, ThrowsMessage<InvalidArgument>(HasSubstr("is empty")));
  const ProcessGroup group = new_group({0});
  if (rank() == 0) return;
  EXPECT_THAT(
      [&] { metrics.across_ranks(group); },
      ThrowsMessage<InvalidArgument>(HasSubstr("Metrics::across_ranks: this process is not in the group")));
}

}  // namespace
}  // namespace lockstep

#include "lockstep/data/distributed_sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <sstream>

#include "lockstep/base/error.h"
#include "testing/python.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::ThrowsMessage;
using Indices = std::vector<std::int64_t>;

DistributedSampler sampler(std::int64_t size, int replicas, int rank, bool shuffle = true) {
  return DistributedSampler(size, {.num_replicas = replicas, .rank = rank, .shuffle = shuffle});
}

// The orders that the article on DDP prints (and that Python gives).
TEST(DistributedSampler, GivesThePrintedOrders) {
  EXPECT_THAT(sampler(20, 2, 0, false).indices(), ElementsAre(0, 2, 4, 6, 8, 10, 12, 14, 16, 18));
  EXPECT_THAT(sampler(20, 2, 1, false).indices(), ElementsAre(1, 3, 5, 7, 9, 11, 13, 15, 17, 19));
  DistributedSampler rank0 = sampler(20, 2, 0);
  DistributedSampler rank1 = sampler(20, 2, 1);
  EXPECT_THAT(rank0.indices(), ElementsAre(4, 13, 7, 3, 9, 11, 16, 10, 15, 1));
  EXPECT_THAT(rank1.indices(), ElementsAre(5, 19, 14, 6, 17, 2, 18, 12, 8, 0));
  rank0.set_epoch(1);
  rank1.set_epoch(1);
  EXPECT_THAT(rank0.indices(), ElementsAre(5, 2, 19, 1, 4, 0, 16, 15, 6, 12));
  EXPECT_THAT(rank1.indices(), ElementsAre(13, 11, 18, 9, 7, 14, 10, 3, 17, 8));
}

TEST(DistributedSampler, WrapsAtTheEndWhenTheSizeDoesNotDivide) {
  EXPECT_THAT(sampler(21, 2, 0, false).indices(), ElementsAre(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20));
  EXPECT_THAT(sampler(21, 2, 1, false).indices(), ElementsAre(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 0));
  EXPECT_THAT(sampler(3, 8, 7, false).indices(), ElementsAre(1));  // 0 1 2 0 1 2 0 1
}

// libtorch's own sampler never shows the last n mod R items when it drops.
TEST(DistributedSampler, DroppingTheTailDropsAnotherOneEachEpoch) {
  std::set<std::int64_t> seen;
  for (int epoch = 0; epoch < 50; ++epoch) {
    for (const int rank : {0, 1}) {
      DistributedSampler half(5, {.num_replicas = 2, .rank = rank, .drop_last = true});
      half.set_epoch(epoch);
      const Indices indices = half.indices();
      EXPECT_THAT(indices, SizeIs(2));
      seen.insert(indices.begin(), indices.end());
    }
  }
  EXPECT_THAT(seen, ElementsAre(0, 1, 2, 3, 4));
}

// Each item once over all ranks, and no rank has two more than another.
TEST(DistributedSampler, CoversTheDataSetExactlyWithoutPadding) {
  for (const std::int64_t size : {0, 1, 2, 3, 4, 5, 20, 33})
    for (const int replicas : {1, 2, 3, 4, 8})
      for (const bool shuffle : {false, true}) {
        Indices all;
        for (int rank = 0; rank < replicas; ++rank) {
          DistributedSampler one(size,
                                 {.num_replicas = replicas, .rank = rank, .shuffle = shuffle, .pad = false});
          one.set_epoch(2);
          const Indices mine = one.indices();
          EXPECT_EQ(one.size(), size / replicas + (rank < size % replicas ? 1 : 0));
          EXPECT_EQ(mine.size(), static_cast<std::size_t>(one.size()));
          one.reset();  // of libtorch's loader
          Indices batches;
          while (const auto batch = one.next(3)) batches.insert(batches.end(), batch->begin(), batch->end());
          EXPECT_EQ(batches, mine);
          all.insert(all.end(), mine.begin(), mine.end());
        }
        std::sort(all.begin(), all.end());
        Indices expected(static_cast<std::size_t>(size));
        std::iota(expected.begin(), expected.end(), 0);
        EXPECT_EQ(all, expected) << size << " items for " << replicas;
      }
}

TEST(DistributedSampler, SaysWhichPlacesArePadding) {
  EXPECT_THAT(sampler(5, 3, 2, false).positions(), ElementsAre(2, 5));
  EXPECT_THAT(DistributedSampler(5, {.num_replicas = 3, .rank = 2, .pad = false}).positions(),
              ElementsAre(2));
}

TEST(DistributedSampler, RefusesToDropWithoutPadding) {
  EXPECT_THAT([] { DistributedSampler(5, {.num_replicas = 1, .rank = 0, .drop_last = true, .pad = false}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("drop_last leaves items out")));
  DistributedSampler exact(5, {.num_replicas = 1, .rank = 0, .pad = false});
  EXPECT_THAT([&] { exact.load_state(sampler(5, 1, 0).state()); },
              ThrowsMessage<InvalidArgument>(HasSubstr("pad 1, this sampler has 0")));
}

TEST(DistributedSampler, AcceptsAnEmptyDataSet) {
  EXPECT_THAT(sampler(0, 3, 1).indices(), SizeIs(0));
  EXPECT_EQ(sampler(0, 3, 1).size(), 0);
}

// Python writes, for each of 1,000 random cases: n R seed epoch drop_last shuffle, then every rank's indices.
constexpr const char* ORACLE = R"(
import random, sys
from torch.utils.data import DistributedSampler
draw = random.Random(20240607)
for _ in range(1000):
    n = draw.choice([draw.randint(1, 12), draw.randint(1, 300), draw.randint(1, 3000)])
    replicas = draw.choice([draw.randint(1, 4), draw.randint(1, 40)])
    seed = draw.choice([0, draw.randint(1, 1000), draw.randint(0, 2**62)])
    epoch = draw.choice([0, draw.randint(1, 10), draw.randint(0, 2**31)])
    drop, shuffle = draw.random() < 0.5, draw.random() < 0.9
    print(n, replicas, seed, epoch, int(drop), int(shuffle))
    for rank in range(replicas):
        sampler = DistributedSampler(range(n), replicas, rank, shuffle, seed, drop)
        sampler.set_epoch(epoch)
        indices = list(sampler)
        print(len(indices), *indices)
)";

TEST(DistributedSampler, EqualsPythonInAThousandRandomCases) {
  std::istringstream oracle(testing::run_python(ORACLE));
  std::int64_t size = 0;
  std::int64_t epoch = 0;
  DistributedSamplerOptions options;
  int replicas = 0;
  int cases = 0;
  while (oracle >> size >> replicas >> options.seed >> epoch >> options.drop_last >> options.shuffle) {
    ++cases;
    options.num_replicas = replicas;
    for (int rank = 0; rank < replicas; ++rank) {
      std::size_t count = 0;
      oracle >> count;
      Indices expected(count);
      for (std::int64_t& index : expected) oracle >> index;
      options.rank = rank;
      DistributedSampler ours(size, options);
      ours.set_epoch(epoch);
      ASSERT_EQ(ours.size(), static_cast<std::int64_t>(count));
      ASSERT_EQ(ours.indices(), expected)
          << "n " << size << ", replicas " << replicas << ", rank " << rank << ", seed " << options.seed
          << ", epoch " << epoch << ", drop_last " << options.drop_last;
    }
  }
  EXPECT_TRUE(oracle.eof());
  EXPECT_EQ(cases, 1000);
}

TEST(DistributedSampler, ResumesInMidEpoch) {
  DistributedSampler before = sampler(20, 2, 1);
  before.set_epoch(3);
  EXPECT_EQ(before.start_pass(), 0);
  before.advance(4);
  const DistributedSamplerState saved = before.state();

  DistributedSampler after = sampler(20, 2, 1);
  after.load_state(saved);
  after.set_epoch(saved.epoch);  // as a training loop does at the head of an epoch
  EXPECT_EQ(after.indices(), before.indices());
  EXPECT_EQ(after.start_pass(), 4);
  after.advance(6);
  EXPECT_EQ(after.start_pass(), 0) << "only the first pass after load_state() starts in the middle";
}

TEST(DistributedSampler, AFinishedEpochStaysFinishedWhenResumed) {
  DistributedSampler before = sampler(20, 2, 0);
  before.start_pass();
  before.advance(10);
  DistributedSampler after = sampler(20, 2, 0);
  after.load_state(before.state());
  EXPECT_EQ(after.start_pass(), after.size());
}

TEST(DistributedSampler, AnotherEpochStartsAtItsBeginning) {
  DistributedSampler after = sampler(20, 2, 0);
  DistributedSamplerState state = after.state();
  state.position = 5;
  after.load_state(state);
  after.set_epoch(1);
  EXPECT_EQ(after.start_pass(), 0);
}

std::string sampler_refusal(const DistributedSamplerState& state) {
  DistributedSampler here = sampler(20, 2, 0);
  try {
    here.load_state(state);
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(here.state(), sampler(20, 2, 0).state()) << "a refused state must change nothing";
    return error.what();
  }
  return "accepted";
}

TEST(DistributedSampler, RefusesAStateOfAnotherOrder) {
  const DistributedSamplerState good = sampler(20, 2, 0).state();
  const auto with = [&](auto member, auto value) {
    DistributedSamplerState state = good;
    state.*member = value;
    return sampler_refusal(state);
  };
  using State = DistributedSamplerState;
  EXPECT_EQ(sampler_refusal(good), "accepted");
  EXPECT_THAT(with(&State::dataset_size, 21), HasSubstr("dataset_size 21, this sampler has 20"));
  EXPECT_THAT(with(&State::num_replicas, 3), HasSubstr("num_replicas 3, this sampler has 2"));
  EXPECT_THAT(with(&State::seed, 7), HasSubstr("seed 7, this sampler has 0"));
  EXPECT_THAT(with(&State::shuffle, false), HasSubstr("shuffle"));
  EXPECT_THAT(with(&State::drop_last, true), HasSubstr("drop_last"));
  EXPECT_THAT(with(&State::position, 11), HasSubstr("a position from 0 to 10"));
  EXPECT_THAT(with(&State::epoch, -1), HasSubstr("epoch -1"));
}

TEST(DistributedSampler, RefusesImpossibleArguments) {
  EXPECT_THROW(sampler(-1, 1, 0), InvalidArgument);
  EXPECT_THROW(sampler(1, 0, 0), InvalidArgument);
  EXPECT_THROW(sampler(1, 2, 2), InvalidArgument);
  EXPECT_THROW(sampler(1, 2, -1), InvalidArgument);
  EXPECT_THROW(sampler(1, 2, 0).set_epoch(-1), InvalidArgument);
  EXPECT_THROW(DistributedSampler(5), InvalidArgument) << "there is no job to ask for rank and size";
}

}  // namespace
}  // namespace lockstep

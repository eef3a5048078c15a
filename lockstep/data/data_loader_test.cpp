#include "lockstep/data/data_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <numeric>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;
using Indices = std::vector<std::int64_t>;

std::atomic<int> threads_alive = 0;  // that have called get_batch

struct CountsThreads {
  CountsThreads() { ++threads_alive; }
  ~CountsThreads() { --threads_alive; }
  CountsThreads(const CountsThreads&) = delete;
  CountsThreads& operator=(const CountsThreads&) = delete;
};

// Batches are the indices themselves.
struct Numbers {
  std::int64_t count = 100;
  std::int64_t broken = -1;  // get_batch throws when asked for this item

  std::int64_t size() const { return count; }
  Indices get_batch(std::span<const std::int64_t> indices) const {
    thread_local const CountsThreads counted;
    if (std::find(indices.begin(), indices.end(), broken) != indices.end())
      throw std::runtime_error("item is broken");
    return {indices.begin(), indices.end()};
  }
};

DistributedSampler sampler_of(std::int64_t size, bool shuffle = true) {
  return DistributedSampler(size, {.num_replicas = 1, .rank = 0, .shuffle = shuffle});
}

template <typename Loader> Indices all_items(const Loader& loader) {
  Indices items;
  for (auto& batch : loader) items.insert(items.end(), batch.begin(), batch.end());
  return items;
}

TEST(DataLoader, KeepsTheSamplersOrderWithAnyNumberOfThreads) {
  const Numbers numbers{.count = 1000};
  DistributedSampler sampler = sampler_of(1000);
  for (const int workers : {0, 1, 2, 7}) {
    const auto loader = make_data_loader(numbers, sampler, {.batch_size = 7, .workers = workers});
    EXPECT_EQ(all_items(loader), sampler.indices()) << workers << " workers";
    EXPECT_EQ(loader.size(), 143);
  }
}

// libtorch's loader copies the sampler, so that its set_epoch() has no effect.
TEST(DataLoader, ReshufflesWhenTheSamplerIsGivenAnotherEpoch) {
  const Numbers numbers;
  DistributedSampler sampler = sampler_of(100);
  const auto loader = make_data_loader(numbers, sampler, {.batch_size = 10});
  const Indices first = all_items(loader);
  EXPECT_EQ(all_items(loader), first);
  sampler.set_epoch(1);
  const Indices second = all_items(loader);
  EXPECT_NE(second, first);
  EXPECT_EQ(second, sampler.indices());
}

// Items that differ from epoch to epoch: 1000 * epoch + index.
struct Drawn {
  std::int64_t size() const { return 20; }
  Indices get_batch(std::span<const std::int64_t> indices, std::int64_t epoch) const {
    Indices items;
    for (const std::int64_t index : indices) items.push_back(1000 * epoch + index);
    return items;
  }
};

TEST(DataLoader, TellsTheDataSetTheEpochOfTheSampler) {
  DistributedSampler sampler = sampler_of(20);
  for (const int workers : {0, 1, 3}) {
    const auto loader = make_data_loader(Drawn(), sampler, {.batch_size = 3, .workers = workers});
    for (const std::int64_t epoch : {0, 7}) {
      sampler.set_epoch(epoch);
      Indices expected = sampler.indices();
      for (std::int64_t& item : expected) item += 1000 * epoch;
      EXPECT_EQ(all_items(loader), expected) << workers << " workers, epoch " << epoch;
    }
  }
}

TEST(DataLoader, MakesTheLastBatchSmallOrDropsIt) {
  const Numbers numbers{.count = 10};
  DistributedSampler sampler = sampler_of(10, false);
  std::vector<Indices> batches;
  for (auto& batch : make_data_loader(numbers, sampler, {.batch_size = 4})) batches.push_back(batch);
  EXPECT_THAT(batches, ElementsAre(ElementsAre(0, 1, 2, 3), ElementsAre(4, 5, 6, 7), ElementsAre(8, 9)));
  const auto dropping = make_data_loader(numbers, sampler, {.batch_size = 4, .drop_last = true});
  EXPECT_THAT(all_items(dropping), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_EQ(dropping.size(), 2);
}

TEST(DataLoader, AnEmptyShareIsAnEmptyLoop) {
  const Numbers numbers{.count = 0};
  DistributedSampler sampler = sampler_of(0);
  EXPECT_THAT(all_items(make_data_loader(numbers, sampler)), SizeIs(0));
}

TEST(DataLoader, ThrowsWhatAWorkerThrewWhenItsBatchIsDue) {
  const Numbers numbers{.count = 100, .broken = 35};
  DistributedSampler sampler = sampler_of(100, false);
  for (const int workers : {0, 1, 4}) {
    int good = 0;
    try {
      for (auto& batch : make_data_loader(numbers, sampler, {.batch_size = 10, .workers = workers}))
        good += static_cast<int>(batch.size());
      ADD_FAILURE() << "no exception";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "item is broken");
    }
    EXPECT_EQ(good, 30);
    EXPECT_EQ(sampler.state().position, 30);
  }
}

TEST(DataLoader, LeavingTheLoopEarlyEndsItsThreads) {
  const Numbers numbers{.count = 100000};
  DistributedSampler sampler = sampler_of(100000);
  const auto loader = make_data_loader(numbers, sampler, {.batch_size = 2, .workers = 3});
  const int before = threads_alive;
  for (int trial = 0; trial < 20; ++trial) {
    int batches = 0;
    for ([[maybe_unused]] auto& batch : loader)
      if (++batches > trial) break;
    EXPECT_EQ(threads_alive, before);
  }
  EXPECT_THAT(all_items(loader), SizeIs(100000)) << "the next loop starts at the beginning";
  EXPECT_EQ(threads_alive, before);
}

TEST(DataLoader, ResumesAfterTheLastBatchThatWasHandedOut) {
  const Numbers numbers;
  DistributedSampler before = sampler_of(100);
  before.set_epoch(5);
  Indices items;
  int batches = 0;
  for (auto& batch : make_data_loader(numbers, before, {.batch_size = 8, .workers = 4})) {
    items.insert(items.end(), batch.begin(), batch.end());
    if (++batches == 5) break;  // more have been prefetched
  }
  DistributedSampler after = sampler_of(100);
  after.load_state(before.state());
  after.set_epoch(5);
  const auto loader = make_data_loader(numbers, after, {.batch_size = 8, .workers = 1});
  const Indices rest = all_items(loader);
  items.insert(items.end(), rest.begin(), rest.end());
  EXPECT_EQ(items, before.indices());
  EXPECT_EQ(all_items(loader), before.indices()) << "only the first loop starts in the middle";
}

TEST(DataLoader, AFinishedEpochStaysFinishedWhenResumed) {
  const Numbers numbers;
  DistributedSampler before = sampler_of(100);
  all_items(make_data_loader(numbers, before, {.batch_size = 30, .drop_last = true}));
  DistributedSampler after = sampler_of(100);
  after.load_state(before.state());
  EXPECT_THAT(all_items(make_data_loader(numbers, after, {.batch_size = 30, .drop_last = true})), SizeIs(0));
}

TEST(DataLoader, OwnsATemporaryDataSet) {
  DistributedSampler sampler = sampler_of(6, false);
  const auto loader = make_data_loader(Numbers{.count = 6}, sampler, {.batch_size = 3, .workers = 1});
  EXPECT_THAT(all_items(loader), ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST(DataLoader, RefusesAnotherEpochWithinALoop) {
  const Numbers numbers;
  DistributedSampler sampler = sampler_of(100);
  EXPECT_THROW(
      {
        for ([[maybe_unused]] auto& batch : make_data_loader(numbers, sampler, {.batch_size = 10}))
          sampler.set_epoch(1);
      },
      InvalidArgument);
}

TEST(DataLoader, RefusesOptionsOutOfRange) {
  const Numbers numbers;
  DistributedSampler sampler = sampler_of(100);
  EXPECT_THROW(make_data_loader(numbers, sampler, {.batch_size = 0}), InvalidArgument);
  EXPECT_THROW(make_data_loader(numbers, sampler, {.workers = -1}), InvalidArgument);
  EXPECT_THROW(make_data_loader(numbers, sampler, {.prefetch_factor = 0}), InvalidArgument);
}

TEST(Prefetcher, NeverRunsFurtherAheadThanItMay) {
  constexpr int AHEAD = 3;
  std::atomic<std::int64_t> taken = 0;  // lags behind what the prefetcher knows by at most one
  std::atomic<bool> ran_ahead = false;
  Prefetcher<std::int64_t> numbers({.count = 2000, .workers = 2, .ahead = AHEAD}, [&](std::int64_t i) {
    if (i > taken + AHEAD) ran_ahead = true;
    return i;
  });
  for (std::int64_t i = 0; numbers.has_next(); ++i) {
    ASSERT_EQ(numbers.next(), i);
    taken = i + 1;
  }
  EXPECT_EQ(taken, 2000);
  EXPECT_FALSE(ran_ahead);
}

}  // namespace
}  // namespace lockstep

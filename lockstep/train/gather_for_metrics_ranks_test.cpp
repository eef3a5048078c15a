// Every item's row once, by its index, whatever the number of ranks, the sampler and the loader.
#include "lockstep/train/gather_for_metrics.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "lockstep/data/data_loader.h"
#include "lockstep/job/groups.h"
#include "lockstep/job/virtual_ranks.h"
#include "lockstep/parallel/virtual_ranks/virtual_ranks.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Item i is the row (i, 10 i, i * i).
at::Tensor rows_of_items(const std::vector<std::int64_t>& indices) {
  const at::Tensor i = at::tensor(indices, at::kLong);
  return at::stack({i, 10 * i, i * i}, 1);
}
at::Tensor rows_of_all(std::int64_t size) {
  const at::Tensor i = at::arange(size, at::kLong);
  return at::stack({i, 10 * i, i * i}, 1);
}
struct Items {
  std::int64_t count;
  std::int64_t size() const { return count; }
  at::Tensor get_batch(std::span<const std::int64_t> indices) const {
    return rows_of_items({indices.begin(), indices.end()});
  }
};

constexpr std::int64_t SIZES[] = {0, 1, 2, 3, 4, 7, 16, 33};

RANKS_TEST(GatherForMetrics, GivesEachItemOnceInOrder, Ranks(1, 2, 3, 4), EveryBackend()) {
  for (const std::int64_t count : SIZES)
    for (const bool pad : {true, false})
      for (const bool shuffle : {false, true}) {
        DistributedSampler sampler(count,
                                   {.num_replicas = size(), .rank = rank(), .shuffle = shuffle, .pad = pad});
        sampler.set_epoch(3);
        const at::Tensor all = gather_for_metrics(rows_of_items(sampler.indices()), sampler, world());
        EXPECT_TRUE(all.equal(rows_of_all(count))) << count << ' ' << pad << ' ' << shuffle;
      }
}

// With batches of 3, some of which are not full, and ranks without any.
RANKS_TEST(GatherForMetrics, TakesTheBatchesOfALoader, Ranks(1, 2, 3, 4)) {
  for (const std::int64_t count : SIZES)
    for (const bool pad : {true, false}) {
      DistributedSampler sampler(count, {.pad = pad});
      auto loader = make_data_loader(Items{count}, sampler, {.batch_size = 3, .workers = rank() % 2});
      std::vector<at::Tensor> batches;
      for (auto& batch : loader) batches.push_back(batch.to(at::kDouble));
      const at::Tensor all = gather_for_metrics(batches, sampler);
      EXPECT_EQ(all.size(0), count);
      if (count > 0) EXPECT_TRUE(all.equal(rows_of_all(count).to(at::kDouble))) << count << ' ' << pad;
    }
}

RANKS_TEST(GatherForMetrics, GoesStepByStep, Ranks(1, 2, 3, 4)) {
  for (const std::int64_t count : SIZES) {
    DistributedSampler sampler(count, {.shuffle = false});
    auto loader = make_data_loader(Items{count}, sampler, {.batch_size = 3});
    std::int64_t done = 0;
    for (auto& batch : loader) {
      const at::Tensor rows = gather_for_metrics(batch, sampler);
      const std::int64_t end = std::min(count, done + 3 * size());
      EXPECT_TRUE(rows.equal(rows_of_all(count).slice(0, done, end))) << count << " from " << done;
      done = end;
    }
    EXPECT_EQ(done, count);
  }
}

RANKS_TEST(GatherForMetrics, LeavesOutWhatWasDropped, Ranks(1, 2, 3, 4)) {
  DistributedSampler sampler(11, {.shuffle = false, .drop_last = true});
  const at::Tensor all = gather_for_metrics(rows_of_items(sampler.indices()), sampler);
  EXPECT_TRUE(all.equal(rows_of_all(11).slice(0, 0, 11 / size() * size())));
}

RANKS_TEST(GatherForMetrics, TakesAllDtypesAndShapes, Ranks(1, 2, 3, 4)) {
  const DistributedSampler sampler(10, {.pad = false});
  for (const at::ScalarType dtype :
       {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kShort, at::kChar,
        at::kByte, at::kBool, at::kComplexFloat, at::kComplexDouble}) {
    const at::Tensor mine = rows_of_items(sampler.indices()).to(dtype);
    EXPECT_TRUE(gather_for_metrics(mine, sampler).equal(rows_of_all(10).to(dtype))) << dtype;
    const at::Tensor flat = mine.select(1, 0);  // with strides
    EXPECT_TRUE(gather_for_metrics(flat, sampler).equal(at::arange(10, at::kLong).to(dtype))) << dtype;
    const at::Tensor deep = mine.view({-1, 1, 3, 1}).expand({-1, 2, 3, 1});
    EXPECT_TRUE(gather_for_metrics(deep, sampler)
                    .equal(rows_of_all(10).to(dtype).view({-1, 1, 3, 1}).expand({-1, 2, 3, 1})));
  }
  const at::Tensor with_grad = rows_of_items(sampler.indices()).to(at::kFloat).requires_grad_();
  EXPECT_FALSE(gather_for_metrics(with_grad, sampler).requires_grad());
}

// A rank that has no item may give nothing, or an empty tensor of any shape.
RANKS_TEST(GatherForMetrics, TakesFewerItemsThanRanks, Ranks(2, 3, 4)) {
  const DistributedSampler sampler(1, {.pad = false});
  const at::Tensor one = rank() == 0 ? rows_of_items({0}) : at::Tensor();
  EXPECT_TRUE(gather_for_metrics(one, sampler).equal(rows_of_all(1)));
  const at::Tensor other = rank() == 0 ? rows_of_items({0}) : at::empty({0}, at::kFloat);
  EXPECT_TRUE(gather_for_metrics(other, sampler).equal(rows_of_all(1)));
}

// The batches of 4 virtual ranks, of which each process has some.
RANKS_TEST(GatherForMetrics, TakesTheTurnsOfVirtualRanks, Ranks(1, 2, 3, 4),
           Variable("LOCKSTEP_VIRTUAL_RANKS", "4")) {
  seed_virtual_ranks(1);
  for (const std::int64_t count : {1, 3, 16, 22, 37}) {
    DistributedSampler sampler(count);
    auto loader = make_data_loader(Items{count}, sampler, {.batch_size = 3});
    std::vector<at::Tensor> batches;
    for (auto& step : virtual_steps(loader))
      for (auto& batch : step) {
        EXPECT_LE(batch.size(0), 3);
        batches.push_back(batch);
      }
    EXPECT_TRUE(gather_for_metrics(batches, sampler).equal(rows_of_all(count))) << count;
    EXPECT_TRUE(gather_for_metrics(rows_of_items(sampler.indices()), sampler).equal(rows_of_all(count)));
    DistributedSampler exact(count, {.pad = false});  // of processes
    EXPECT_TRUE(gather_for_metrics(rows_of_items(exact.indices()), exact).equal(rows_of_all(count)));
  }
}

RANKS_TEST(GatherForMetrics, RefusesWhatIsNotTheEpochsOnAllRanks, Ranks(2, 3, 4), BackendsWithPeers()) {
  const DistributedSampler sampler(20 * size(), {.num_replicas = size(), .rank = rank()});
  const at::Tensor mine = rows_of_items(sampler.indices());
  const auto refused = [&](const at::Tensor& rows, const std::string& words) {
    EXPECT_THAT([&] { gather_for_metrics(rows, sampler, world()); },
                ThrowsMessage<InvalidArgument>(
                    AllOf(HasSubstr("gather_for_metrics on group \"world\", rank "), HasSubstr(words))));
  };
  refused(rank() == 1 ? mine.slice(0, 0, 7) : mine, "rank 1: there are 7 rows, and of this epoch's 20 items");
  refused(rank() == 1 ? mine.sum() : mine, "rank 1: the tensor has no dimensions");
  const auto differ = [&](const at::Tensor& rows, const DistributedSampler& of, const std::string& words) {
    EXPECT_THAT([&] { gather_for_metrics(rows, of, world()); }, ThrowsMessage<Mismatch>(HasSubstr(words)));
  };
  differ(rank() == 1 ? mine.to(at::kFloat) : mine, sampler,
         "rank 1 has Float rows of shape [3], rank 0 has Long");
  differ(rank() == 1 ? mine.slice(1, 0, 2) : mine, sampler, "rank 1 has Long rows of shape [2], rank 0 has");
  const DistributedSampler same(20, {.num_replicas = size(), .rank = 0});
  differ(rows_of_items(same.indices()), same, "item 0 of the epoch's order is on two ranks");
  const DistributedSampler wider(20, {.num_replicas = size() + 1, .rank = rank()});
  differ(rows_of_items(wider.indices()), wider, "of the epoch's order is on none");
  EXPECT_EQ(gather_for_metrics(mine, sampler, world()).size(0), 20 * size());
}

RANKS_TEST(GatherForMetrics, RefusesRanksAtDifferentBatches, Ranks(2, 3)) {
  DistributedSampler sampler(12 * size());
  auto loader = make_data_loader(Items{12 * size()}, sampler, {.batch_size = 4});
  auto place = loader.begin();
  if (rank() == 1) ++place;
  EXPECT_THAT([&] { gather_for_metrics(*place, sampler); },
              ThrowsMessage<Mismatch>(HasSubstr("give the same batch on all ranks")));
}

RANKS_TEST(GatherForMetrics, RefusesAProcessOutsideOfTheGroup, Ranks(2)) {
  const ProcessGroup group = new_group({0});
  const DistributedSampler sampler(4, {.num_replicas = 1, .rank = 0});
  const at::Tensor rows = rows_of_items(sampler.indices());
  if (rank() == 0) {
    EXPECT_TRUE(gather_for_metrics(rows, sampler, group).equal(rows_of_all(4)));
  } else {
    EXPECT_THAT([&] { gather_for_metrics(rows, sampler, group); },
                ThrowsMessage<InvalidArgument>(HasSubstr("this process is not in the group")));
  }
}

}  // namespace
}  // namespace lockstep

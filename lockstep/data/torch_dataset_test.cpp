// libtorch's data sets and loader beside ours: the same batches, whoever makes them.
#include "lockstep/data/torch_dataset.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <set>

#include "lockstep/base/log.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using torch::data::transforms::Stack;

constexpr std::int64_t SIZE = 23;

// Item i is (i, i * i).
struct Squares : torch::data::datasets::Dataset<Squares> {
  torch::data::Example<> get(std::size_t index) override {
    const auto i = static_cast<std::int64_t>(index);
    return {torch::full({2}, i), torch::full({1}, i * i)};
  }
  std::optional<std::size_t> size() const override { return SIZE; }
};

struct Sizeless : Squares {
  std::optional<std::size_t> size() const override { return std::nullopt; }
};

DistributedSampler sampler_of(int replicas, int rank, bool shuffle) {
  return DistributedSampler(SIZE, {.num_replicas = replicas, .rank = rank, .shuffle = shuffle});
}

using Rows = std::vector<std::int64_t>;  // the first number of each item
template <typename Loader> std::vector<Rows> batches_of(Loader&& loader) {
  std::vector<Rows> batches;
  for (auto& batch : loader) {
    Rows& rows = batches.emplace_back();
    for (std::int64_t i = 0; i < batch.data.size(0); ++i) {
      rows.push_back(batch.data[i][0].template item<std::int64_t>());
      EXPECT_EQ(batch.target[i][0].template item<std::int64_t>(), rows.back() * rows.back());
    }
  }
  return batches;
}

// One process of libtorch alone.
std::vector<Rows> expected_in_order(std::size_t batch) {
  const auto loader = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
      Squares().map(Stack<>()), torch::data::DataLoaderOptions(batch));
  return batches_of(*loader);
}

TEST(TorchDataset, GivesOurLoaderTheBatchesOfLibtorchs) {
  for (const int workers : {0, 1, 3}) {
    DistributedSampler sampler = sampler_of(1, 0, false);
    auto loader = make_data_loader(Squares().map(Stack<>()), sampler, {.batch_size = 4, .workers = workers});
    EXPECT_EQ(batches_of(loader), expected_in_order(4)) << workers << " workers";
  }
}

TEST(TorchDataset, GivesEachRankItsShare) {
  std::multiset<std::int64_t> all;
  for (int rank = 0; rank < 2; ++rank) {
    DistributedSampler sampler = sampler_of(2, rank, true);
    sampler.set_epoch(3);
    Rows rows;
    auto loader = make_data_loader(Squares().map(Stack<>()), sampler, {.batch_size = 5, .workers = 2});
    for (const Rows& batch : batches_of(loader)) rows.insert(rows.end(), batch.begin(), batch.end());
    EXPECT_EQ(rows, sampler.indices());
    all.insert(rows.begin(), rows.end());
  }
  EXPECT_EQ(all.size(), 24u) << "23 and one that comes twice";
  EXPECT_EQ((std::set<std::int64_t>(all.begin(), all.end()).size()), 23u);
}

TEST(TorchDataset, WithoutATransformABatchIsAListOfItems) {
  DistributedSampler sampler = sampler_of(1, 0, false);
  auto loader = make_data_loader(Squares(), sampler, {.batch_size = 23});
  EXPECT_EQ((*loader.begin()).size(), 23u);
}

TEST(TorchDataset, RefusesOneWithoutASize) {
  DistributedSampler sampler = sampler_of(1, 0, false);
  try {
    make_data_loader(Sizeless(), sampler);
    FAIL() << "it was accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("does not know its size"));
  }
}

TEST(TorchLoader, TakesOurSampler) {
  const auto loader_of = [](const DistributedSampler& sampler, std::size_t workers) {
    return torch::data::make_data_loader(Squares().map(Stack<>()), sampler,
                                         torch::data::DataLoaderOptions(4).workers(workers));
  };
  EXPECT_EQ(batches_of(*loader_of(sampler_of(1, 0, false), 0)), expected_in_order(4));
  for (const std::size_t workers : {0, 2}) {
    DistributedSampler sampler = sampler_of(3, 1, true);
    const auto loader = loader_of(sampler, workers);
    for (int epoch = 0; epoch < 3; ++epoch) {
      sampler.set_epoch(epoch);  // the loader has a copy, which sees it
      Rows rows;
      for (const Rows& batch : batches_of(*loader)) rows.insert(rows.end(), batch.begin(), batch.end());
      EXPECT_EQ(rows, sampler.indices()) << "epoch " << epoch;
    }
  }
}

std::vector<std::string> warnings_of(const std::function<void()>& body) {
  std::vector<std::string> lines;
  set_log_sink([&](LogLevel, const std::string& line) { lines.push_back(line); });
  body();
  set_log_sink(nullptr);
  return lines;
}

TEST(DistributedSampler, ASecondEpochInTheSameShuffledOrderIsSaidOnce) {
  const auto train = [](const auto& loader, int epochs) {
    for (int epoch = 0; epoch < epochs; ++epoch) batches_of(loader);
  };
  const auto ours = [](DistributedSampler& sampler) {
    return make_data_loader(Squares().map(Stack<>()), sampler, {.batch_size = 4, .workers = 0});
  };
  DistributedSampler in_order = sampler_of(1, 0, false);
  EXPECT_THAT(warnings_of([&] { train(ours(in_order), 3); }), IsEmpty());
  DistributedSampler told = sampler_of(1, 0, true);
  EXPECT_THAT(warnings_of([&] {
                for (const int epoch : {0, 1, 1, 0}) {
                  told.set_epoch(epoch);
                  train(ours(told), 1);
                }
              }),
              IsEmpty());
  DistributedSampler resumed = sampler_of(1, 0, true);
  EXPECT_THAT(warnings_of([&] {
                train(ours(resumed), 1);
                resumed.load_state(resumed.state());
                train(ours(resumed), 1);
              }),
              IsEmpty());
  DistributedSampler forgotten = sampler_of(2, 0, true);
  EXPECT_THAT(warnings_of([&] { train(ours(forgotten), 1); }), IsEmpty());
  EXPECT_THAT(warnings_of([&] { train(ours(forgotten), 3); }),
              ElementsAre(HasSubstr("call sampler.set_epoch(epoch)")));
}

}  // namespace
}  // namespace lockstep

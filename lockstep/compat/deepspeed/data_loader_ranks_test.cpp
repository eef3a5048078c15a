// The batches of engine.deepspeed_io(), against the rule of DeepSpeed's loader: micro-batches of torch's
// DistributedSampler. That is randperm() seeded with seed + epoch, of which rank r takes every N-th from the
// r-th on.
#include "lockstep/compat/deepspeed/data_loader.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>
#include <torch/nn.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/compat/deepspeed/engine.h"
#include "lockstep/job/groups.h"
#include "testing/ranks.h"

namespace lockstep::compat::deepspeed {
namespace {

using Items = std::vector<std::int64_t>;

constexpr std::int64_t SAMPLES = 11;
constexpr std::int64_t MICRO_BATCH = 2;

struct Indices {
  std::int64_t size() const { return SAMPLES; }
  Items get_batch(std::span<const std::int64_t> indices) const { return {indices.begin(), indices.end()}; }
};

auto engine_on(const ProcessGroup& group, bool drop_last = false) {
  return initialize(torch::nn::Linear(2, 2),
                    parse_config({{"optimizer", {{"type", "Adam"}, {"params", {{"lr", 0.1}}}}},
                                  {"train_micro_batch_size_per_gpu", MICRO_BATCH},
                                  {"gradient_accumulation_steps", 3},
                                  {"dataloader_drop_last", drop_last},
                                  {"zero_optimization", {{"stage", 1}}}}),
                    {.process_group = group});
}

Items counted() {
  Items all(SAMPLES);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

Items shuffled(std::uint64_t seed) {
  const at::Tensor order = at::randperm(SAMPLES, at::detail::createCPUGenerator(seed));
  return {order.data_ptr<std::int64_t>(), order.data_ptr<std::int64_t>() + SAMPLES};
}

// The batches of `batch` samples of rank r of n: the order goes on with its beginning until each has as many.
std::vector<Items> expected_batches(const Items& order, int r, int n, std::int64_t batch, bool drop_last) {
  std::vector<Items> batches;
  const std::int64_t each = (SAMPLES + n - 1) / n;
  for (std::int64_t i = 0; i < each; ++i) {
    if (i % batch == 0) batches.emplace_back();
    batches.back().push_back(order[static_cast<std::size_t>((r + i * n) % SAMPLES)]);
  }
  if (drop_last && each % batch != 0) batches.pop_back();
  return batches;
}

template <typename Loader> std::vector<Items> batches_of(Loader& loader) {
  std::vector<Items> batches;
  for (const Items& batch : loader) batches.push_back(batch);
  EXPECT_EQ(loader.size(), static_cast<std::int64_t>(batches.size()));
  return batches;
}

RANKS_TEST(DeepSpeedIo, HandsOutMicroBatchesInTorchsOrder, Ranks(1, 2, 3, 4)) {
  auto [engine, optimizer, scheduler] = engine_on(world());
  auto loader = engine.deepspeed_io(Indices(), {.seed = 5});
  for (const int epoch : {0, 1}) {
    loader.set_epoch(epoch);
    EXPECT_EQ(batches_of(loader), expected_batches(shuffled(5 + epoch), rank(), size(), MICRO_BATCH, false));
  }
}

RANKS_TEST(DeepSpeedIo, LeavesOutAShortBatchIfTheConfigurationSaysSo, Ranks(1, 2, 3, 4)) {
  auto [engine, optimizer, scheduler] = engine_on(world(), /*drop_last=*/true);
  auto loader = engine.deepspeed_io(Indices(), {.num_local_io_workers = 0, .shuffle = false});
  EXPECT_EQ(batches_of(loader), expected_batches(counted(), rank(), size(), MICRO_BATCH, true));
}

RANKS_TEST(DeepSpeedIo, IsSharedOutOverTheEnginesGroup, Ranks(2, 3)) {
  std::optional<ProcessGroup> alone;
  for (int r = 0; r < size(); ++r) {
    const ProcessGroup group = new_group({r});
    if (r == rank()) alone = group;
  }
  auto [engine, optimizer, scheduler] = engine_on(*alone);
  const Indices dataset;  // used, and not copied
  auto loader = engine.deepspeed_io(dataset, {.batch_size = 4, .shuffle = false});
  EXPECT_EQ(batches_of(loader), expected_batches(counted(), 0, 1, 4, false));
}

// A loader may be moved: it goes on with the sampler that it has.
RANKS_TEST(DeepSpeedIo, GoesOnWhereItsSamplerIsToldTo, Ranks(1, 2)) {
  auto [engine, optimizer, scheduler] = engine_on(world());
  auto first = engine.deepspeed_io(Indices(), {.shuffle = false});
  for (const Items& batch : first) {
    EXPECT_THAT(batch, ::testing::SizeIs(MICRO_BATCH));
    break;
  }
  const DistributedSamplerState state = first.data_sampler().state();
  auto made = engine.deepspeed_io(Indices(), {.shuffle = false});
  auto second = std::move(made);
  second.data_sampler().load_state(state);
  std::vector<Items> rest = expected_batches(counted(), rank(), size(), MICRO_BATCH, false);
  rest.erase(rest.begin());
  std::vector<Items> seen;
  for (const Items& batch : second) seen.push_back(batch);
  EXPECT_EQ(seen, rest);
}

}  // namespace
}  // namespace lockstep::compat::deepspeed

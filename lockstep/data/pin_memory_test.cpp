#include "lockstep/data/pin_memory.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/data/data_loader.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Counts {
  std::int64_t size() const { return 10; }
  Batch get_batch(std::span<const std::int64_t> indices) const {
    const auto count = static_cast<std::int64_t>(indices.size());
    return {at::full({count, 2}, indices[0], at::kFloat), at::full({count}, indices[0], at::kLong)};
  }
};

struct Plain {
  std::int64_t size() const { return 10; }
  int get_batch(std::span<const std::int64_t> indices) const { return static_cast<int>(indices.size()); }
};

DistributedSampler in_order(std::int64_t size) {
  return DistributedSampler(size, {.num_replicas = 1, .rank = 0, .shuffle = false});
}

TEST(PinMemory, IsOffByDefault) {
  DistributedSampler sampler = in_order(10);
  auto loader = make_data_loader(Counts(), sampler);
  EXPECT_EQ(loader.why_not_pinned(), "pin_memory is not set");
  for (auto& batch : loader) EXPECT_FALSE(batch.data.is_pinned());
}

// On a machine with a GPU batches are pinned, on one without they are as ever and the reason is named: either
// way the values are the same, and what the loader says is what the tensors are.
TEST(PinMemory, PinsOrSaysWhyNot) {
  std::vector<std::string> lines;
  set_log_sink([&](LogLevel, const std::string& line) { lines.push_back(line); });
  DistributedSampler sampler = in_order(10);
  for (int round = 0; round < 2; ++round) {
    const auto loader = make_data_loader(Counts(), sampler, {.batch_size = 5, .pin_memory = true});
    EXPECT_EQ(loader.why_not_pinned().empty(), at::hasCUDA());
    std::int64_t first = 0;
    for (auto& batch : loader) {
      EXPECT_EQ(batch.data.is_pinned(), at::hasCUDA());
      EXPECT_EQ(batch.target.is_pinned(), at::hasCUDA());
      EXPECT_TRUE(at::equal(batch.data, at::full({5, 2}, first, at::kFloat)));
      first += 5;
    }
    EXPECT_EQ(first, 10);
  }
  set_log_sink(nullptr);
  if (at::hasCUDA())
    EXPECT_TRUE(lines.empty());
  else
    EXPECT_THAT(lines, ElementsAre(HasSubstr("pin_memory does nothing: this process has no CUDA device")))
        << "once";
}

TEST(PinMemory, RefusesBatchesThatCannotBePinned) {
  DistributedSampler sampler = in_order(10);
  EXPECT_THROW(make_data_loader(Plain(), sampler, {.pin_memory = true}), InvalidArgument);
  EXPECT_EQ(make_data_loader(Plain(), sampler, {.pin_memory = false}).why_not_pinned(),
            "pin_memory is not set");
}

}  // namespace
}  // namespace lockstep

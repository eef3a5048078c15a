#include "lockstep/parallel/tensor_parallel/exchange_memory.h"

#include <ATen/ATen.h>

#include <thread>

#include "lockstep/tensor/collectives.h"
#include "testing/ranks.h"

namespace lockstep::tensor_parallel {
namespace exchange_memory {
namespace {

constexpr std::int64_t COUNT = 10000;

RANKS_TEST(ExchangeMemory, CollectivesWorkInPlace, Ranks(1, 2, 3, 4), Backends("shm", "tcp")) {
  for (int step = 0; step < 3; ++step) {
    at::Tensor x = exchange_empty({COUNT}, at::kFloat, world());
    x.fill_(rank() + step);
    all_reduce(x);
    EXPECT_TRUE(x.eq(size() * (size() - 1) / 2 + size() * step).all().item<bool>());
  }
  const at::Tensor own = at::arange(6, at::kLong).view({2, 3}).t();
  EXPECT_TRUE(exchange_copy(own, world()).equal(own));
  EXPECT_EQ(exchange_empty({0, 3}, at::kDouble, world()).numel(), 0);
}

RANKS_TEST(ExchangeMemory, ServesTheNextTensorOfItsSize, Ranks(2)) {
  at::Tensor first = exchange_empty({COUNT}, at::kFloat, world());
  const void* const place = first.data_ptr();
  const at::Tensor second = exchange_empty({COUNT}, at::kFloat, world());
  EXPECT_NE(second.data_ptr(), place);
  std::thread([dropped = std::move(first)]() mutable { dropped.reset(); }).join();
  first = at::Tensor();
  EXPECT_EQ(exchange_empty({COUNT / 2}, at::kDouble, world()).data_ptr(), place);  // as many bytes
  EXPECT_EQ(exchange_empty({100, COUNT / 100}, at::kFloat, world()).data_ptr(), place);
}

// Idle memory goes back to the group before more is taken, so the arena does not grow.
RANKS_TEST(ExchangeMemory, IdleMemoryOfOtherSizesGoesBack, Ranks(2)) {
  const void* lowest = nullptr;
  for (std::int64_t count = 100 * COUNT; count > 90 * COUNT; count -= COUNT) {
    const at::Tensor x = exchange_empty({count}, at::kFloat, world());
    if (lowest == nullptr) lowest = x.data_ptr();
    EXPECT_EQ(x.data_ptr(), lowest);  // the first fit is where the last one was
  }
}

RANKS_TEST(ExchangeMemory, ATensorOutlivesItsGroup, Ranks(2)) {
  const at::Tensor before = exchange_empty({COUNT}, at::kFloat, world()).fill_(7);
  rejoin();
  const at::Tensor after = exchange_empty({COUNT}, at::kFloat, world()).fill_(1);
  all_reduce(after);
  EXPECT_TRUE(after.eq(2).all().item<bool>());
  EXPECT_TRUE(before.eq(7).all().item<bool>());
}

}  // namespace
}  // namespace exchange_memory
}  // namespace lockstep::tensor_parallel

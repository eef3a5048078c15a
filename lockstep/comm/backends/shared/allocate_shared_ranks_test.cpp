// Memory of a group: whose it is, how long it lives, and that nothing is copied on the way.
#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/comm/collectives/collectives.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr std::size_t SHARED_COUNT = 1 << 18;

std::span<float> floats(const std::shared_ptr<void>& memory) {
  return {static_cast<float*>(memory.get()), SHARED_COUNT};
}

std::shared_ptr<void> filled(const ProcessGroup& group, float value) {
  auto memory = group.allocate_shared(SHARED_COUNT * sizeof(float));
  std::fill(floats(memory).begin(), floats(memory).end(), value);
  return memory;
}

// All ranks of the world once more, as a group of its own.
ProcessGroup all_again(const ProcessGroup& world) {
  return ProcessGroup(world.backend().split({world.ranks()}, "again", {}), world.ranks());
}

RANKS_TEST(AllocateShared, OutlivesTheGroupOrGoesBefore, Ranks(1, 2, 3, 4), EveryBackend()) {
  const ProcessGroup group = all_again(world());
  const auto kept = filled(group, 3);
  filled(group, 4).reset();
  comm::barrier(group);
  group.close();
  EXPECT_THAT(floats(kept), Each(3.0F));
  std::fill(floats(kept).begin(), floats(kept).end(), 5.0F);
  EXPECT_THAT(floats(kept), Each(5.0F));
  world().close();
  EXPECT_THAT(floats(kept), Each(5.0F));
}

RANKS_TEST(AllocateShared, IsFreedWithItsLastReference, Ranks(1, 2), Backends("thread", "shm")) {
  auto first = filled(world(), 1);
  const void* const place = first.get();
  auto copy = first;
  first.reset();
  EXPECT_NE(filled(world(), 2).get(), place);
  copy.reset();
  EXPECT_EQ(filled(world(), 3).get(), place);
}

// Rank 0 reduces alone what all have posted; so the result is in the others' memory before they ask for it.
// With a copy on the way it could not be. Also when the memory was made for another group.
RANKS_TEST(AllocateShared, NothingIsCopiedOnTheWay, Ranks(2, 3, 4), Backends("thread", "shm")) {
  const ProcessGroup group = all_again(world());
  for (const ProcessGroup* maker : {&group, &world()}) {
    const auto memory = filled(*maker, static_cast<float>(rank() + 1));
    Work work = comm::all_reduce(group, floats(memory), ReduceOp::SUM, /*async_op=*/true);
    if (rank() == 0) work.wait();
    int token = 0;
    if (rank() == 0) {
      for (int r = 1; r < size(); ++r) comm::send(world(), std::span<const int>(&token, 1), r);
    } else {
      comm::recv(world(), std::span(&token, 1), 0);
    }
    EXPECT_THAT(floats(memory), Each(static_cast<float>(size() * (size() + 1)) / 2));
    work.wait();
  }
  group.close();
}

// A rank that stopped in the middle may still write there.
RANKS_TEST(AllocateShared, WhatAFailedOperationUsedIsNotUsedAgain, Ranks(2, 3), Backends("thread", "shm")) {
  const ProcessGroup group = all_again(world());
  auto memory = filled(group, 1);
  const void* const place = memory.get();
  Work work;
  if (rank() == 0) work = comm::all_reduce(group, floats(memory), ReduceOp::SUM, /*async_op=*/true);
  comm::barrier(world());
  if (rank() == 1) group.abort("on purpose");
  comm::barrier(world());
  if (rank() == 0) EXPECT_THAT([&] { work.wait(); }, ThrowsMessage<Aborted>(HasSubstr("on purpose")));
  memory.reset();
  if (rank() == 0) EXPECT_NE(filled(world(), 2).get(), place);
  if (rank() != 0) EXPECT_EQ(filled(world(), 2).get(), place);
  comm::barrier(world());
}

}  // namespace
}  // namespace lockstep

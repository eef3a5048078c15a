// LOCKSTEP_DEBUG=on: a rank that writes to its buffer between an asynchronous call and its wait is told so,
// and the others too.
#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/collectives/collectives.h"
#include "testing/buffers.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr float EVERY_BYTE_DIFFERS = -0x1.fffffep0F;  // from those of 1.0

// Rank 0's operation is surely in flight: the others make the call when they have heard that it has written.
void let_the_others_come(const ProcessGroup& group) {
  int token = 0;
  for (int r = 1; r < group.size() && group.rank() == 0; ++r)
    comm::send(group, std::span<const int>(&token, 1), r);
  if (group.rank() != 0) comm::recv(group, std::span(&token, 1), 0);
}

void writes_into_flight(const ProcessGroup& group, Memory memory, std::size_t count) {
  const Buffer<float> x(group, memory, count);
  x.fill([&](std::size_t) { return 1.0F; });
  if (group.rank() != 0) {
    let_the_others_come(group);
    Work work = comm::all_reduce(group, x.span(), ReduceOp::SUM, /*async_op=*/true);
    EXPECT_THAT([&] { comm::barrier(group); }, ThrowsMessage<Error>(HasSubstr("all_reduce #1")));
    return;
  }
  Work work = comm::all_reduce(group, x.span(), ReduceOp::SUM, /*async_op=*/true);
  x.span()[count - 1] = EVERY_BYTE_DIFFERS;
  let_the_others_come(group);
  EXPECT_THAT([&] { work.wait(); }, ThrowsMessage<InvalidArgument>(AllOf(
                                        HasSubstr("all_reduce #1"), HasSubstr("rank 0 of"),
                                        HasSubstr(str("written at byte ", (count - 1) * sizeof(float))))));
}

RANKS_TEST(Debug, ABucketTouchedInFlightIsNamed, Ranks(2, 3), Backends("thread", "shm"),
           Variable("LOCKSTEP_DEBUG", "on")) {
  writes_into_flight(world(), Memory::SHARED, 100000);
}
RANKS_TEST(Debug, ASmallBufferTouchedInFlightIsNamed, Ranks(2, 3), Backends("thread", "shm"),
           Variable("LOCKSTEP_DEBUG", "on")) {
  writes_into_flight(world(), Memory::SHARED, 200);
}
RANKS_TEST(Debug, APrivateBufferTouchedInFlightIsNamed, Ranks(2, 3), Backends("thread", "shm"),
           Variable("LOCKSTEP_DEBUG", "on")) {
  writes_into_flight(world(), Memory::PRIVATE, 100000);
}

RANKS_TEST(Debug, ABroadcastFromABufferTouchedInFlightIsNamed, Ranks(2, 3), Backends("thread", "shm"),
           Variable("LOCKSTEP_DEBUG", "on")) {
  const Buffer<float> x(world(), Memory::SHARED, 300000);
  x.fill([&](std::size_t) { return 1.0F; });
  if (rank() != 0) let_the_others_come(world());
  Work work = comm::broadcast(world(), x.span(), 0, /*async_op=*/true);
  if (rank() != 0) return;
  x.span()[0] = EVERY_BYTE_DIFFERS;
  let_the_others_come(world());
  EXPECT_THAT([&] { work.wait(); }, ThrowsMessage<InvalidArgument>(HasSubstr("written at byte 0")));
}

// The same bits, and nothing is found, where nobody does.
RANKS_TEST(Debug, WhatIsLeftAloneIsRight, Ranks(1, 2, 3, 4), Backends("thread", "shm"),
           Variable("LOCKSTEP_DEBUG", "on")) {
  for (const Memory memory : MEMORIES) {
    for (const std::size_t count : {1UL, 50UL, 5000UL, 200000UL}) {
      const Buffer<float> x(world(), memory, count);
      x.fill([&](std::size_t i) { return reference::sample<float>(rank(), i, 0); });
      comm::all_reduce(world(), x.span(), ReduceOp::SUM, /*async_op=*/true).wait();
      EXPECT_EQ(x.difference([&](std::size_t i) {
        return reference::combine<float>(ReduceOp::SUM, samples_of_all<float>(size(), i, 0));
      }),
                "");
    }
  }
}

}  // namespace
}  // namespace lockstep

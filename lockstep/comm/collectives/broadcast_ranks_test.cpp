#include "lockstep/comm/collectives/broadcast.h"

#include "lockstep/base/error.h"
#include "lockstep/comm/collectives/all_reduce.h"
#include "testing/buffers.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

using reference::sample;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

template <typename T>
void check_broadcast(const ProcessGroup& group, int root, Memory memory, std::size_t count,
                     bool async_op = false) {
  SCOPED_TRACE(str(name_of(dtype_of<T>()), ", root ", root, ", ", count, " elements, ",
                   MEMORY_NAMES[static_cast<int>(memory)]));
  const Buffer<T> x(group, memory, count);
  x.fill([&](std::size_t i) { return sample<T>(group.rank(), i, count); });
  comm::broadcast(group, x.span(), root, async_op).wait();
  EXPECT_EQ(x.difference([&](std::size_t i) { return sample<T>(root, i, count); }), "");
}

RANKS_TEST(Broadcast, EveryDtypeRootAndMemory, Ranks(1, 2, 3, 4), EveryBackend()) {
  reference::for_each_dtype([&]<typename T>() {
    for (int root = 0; root < size(); ++root) {
      for (const Memory memory : MEMORIES) {
        for (const std::size_t count : {0, 1, 63, 64, 65, 1000, reference::THOROUGH ? 100003 : 2000})
          check_broadcast<T>(world(), root, memory, count);
      }
    }
  });
  check_broadcast<double>(world(), size() - 1, Memory::PRIVATE, 1 << 20);
}

// Counts around the borders of portions, and several rounds through the window (backends/shared/passage.h).
// Then ranks that do not wait, and ranks with memory of the group.
RANKS_TEST(Broadcast, ThroughWindows, Ranks(2, 3, 4), Backends("thread", "shm"),
           Variable("LOCKSTEP_PATHS", "window")) {
  for (int root = 0; root < size(); ++root) {
    for (const std::size_t count : {0UL, 1UL, 16384UL, 16385UL, 300007UL}) {
      check_broadcast<float>(world(), root, Memory::PRIVATE, count);
      for (int odd = 0; odd < size(); ++odd) {
        check_broadcast<float>(world(), root, Memory::PRIVATE_ODD, count, rank() == odd);
        check_broadcast<float>(world(), root, rank() == odd ? Memory::SHARED : Memory::PRIVATE, count);
      }
    }
  }
}

// The root does not wait for the other ranks, and may change its buffer at once.
RANKS_TEST(Broadcast, TheRootMayGoOn, Ranks(2, 3, 4), EveryBackend()) {
  std::vector<int> x(5000);
  for (int step = 0; step < 200; ++step) {
    const int root = step % 3 % size();
    std::fill(x.begin(), x.end(), rank() == root ? step : -1);
    comm::broadcast(world(), std::span(x), root);
    ASSERT_TRUE(all_are(x, step)) << step;
  }
}

RANKS_TEST(Broadcast, RefusesARootOutsideTheGroup, Ranks(1, 2), EveryBackend()) {
  float x = 1;
  for (const int root : {-1, size()}) {
    EXPECT_THAT([&] { comm::broadcast(world(), std::span(&x, 1), root); },
                ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("broadcast"), HasSubstr(str("root ", root)))));
  }
  comm::all_reduce(world(), std::span(&x, 1));
  EXPECT_EQ(x, static_cast<float>(size()));
}

}  // namespace
}  // namespace lockstep

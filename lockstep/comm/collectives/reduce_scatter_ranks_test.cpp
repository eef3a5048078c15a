#include "lockstep/comm/collectives/reduce_scatter.h"

#include <deque>

#include "lockstep/base/error.h"
#include "testing/buffers.h"
#include "testing/lacking.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

using reference::combine;
using reference::is_refused;
using reference::sample;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

template <typename T> struct ReduceScatterCase {
  ReduceOp op;
  Memory memory;
  bool even;
  std::size_t base;
};

// Rank a's part for rank b has the elements sample(a, i, b). Rank b gets their combination over all a.
template <typename T> void check_reduce_scatter(const ProcessGroup& group, const ReduceScatterCase<T>& c) {
  SCOPED_TRACE(str(name_of(c.op), " of ", name_of(dtype_of<T>()), c.even ? ", even " : ", uneven ", c.base,
                   ", ", MEMORY_NAMES[static_cast<int>(c.memory)]));
  std::deque<Buffer<T>> all;
  std::vector<std::span<const T>> inputs;
  for (int r = 0; r < group.size(); ++r) {
    all.emplace_back(group, c.memory, count_of(c.even, c.base, r)).fill([&](std::size_t i) {
      return sample<T>(group.rank(), i, static_cast<std::uint64_t>(r));
    });
    inputs.push_back(all.back().span());
  }
  const Buffer<T> mine(group, c.memory, count_of(c.even, c.base, group.rank()));
  if (is_lacking(group, dtype_of<T>(), c.op))
    return expect_lacking([&] { comm::reduce_scatter(group, mine.span(), inputs, c.op); });
  comm::reduce_scatter(group, mine.span(), inputs, c.op);
  const auto part = static_cast<std::uint64_t>(group.rank());
  EXPECT_EQ(mine.difference(
                [&](std::size_t i) { return combine<T>(c.op, samples_of_all<T>(group.size(), i, part)); }),
            "");
}

// An output whose writes bypass the caches (backends/shared/reductions.cpp).
RANKS_TEST(ReduceScatter, OfMoreThanTheCachesHold, Ranks(2, 3, 4), Backends("thread", "shm")) {
  constexpr std::size_t BYTES = std::size_t{4} << 20U;
  for (const Memory memory : {Memory::SHARED, Memory::PRIVATE, Memory::PRIVATE_ODD}) {
    check_reduce_scatter<float>(world(), {ReduceOp::SUM, memory, true, BYTES / sizeof(float) + 1});
    if (reference::THOROUGH)
      check_reduce_scatter<std::int8_t>(world(), {ReduceOp::MAX, memory, false, BYTES + 1});
    check_reduce_scatter<double>(world(), {ReduceOp::AVG, memory, true, BYTES / sizeof(double) + 1});
  }
}

// Counts around the borders of portions, and several rounds through the window (backends/shared/passage.h).
RANKS_TEST(ReduceScatter, ThroughWindows, Ranks(2, 3, 4), Backends("thread", "shm"),
           Variable("LOCKSTEP_PATHS", "window")) {
  for (const bool even : {true, false}) {
    for (const std::size_t base : {0UL, 1UL, 65535UL, 65536UL, 65537UL, 300007UL}) {
      check_reduce_scatter<float>(world(), {ReduceOp::SUM, Memory::PRIVATE, even, base});
      const Memory mixed = (rank() & 1) == 0 ? Memory::PRIVATE_ODD : Memory::SHARED;
      check_reduce_scatter<float>(world(), {ReduceOp::AVG, mixed, even, base});
    }
  }
  reference::for_each_dtype([&]<typename T>() {
    for (const ReduceOp op : reference::OPS) {
      if (!is_refused<T>(op)) check_reduce_scatter<T>(world(), {op, Memory::PRIVATE_ODD, true, 1003});
    }
  });
}

RANKS_TEST(ReduceScatter, EveryDtypeOperatorAndMemory, Ranks(1, 2, 3, 4), EveryBackend()) {
  reference::for_each_dtype([&]<typename T>() {
    for (const ReduceOp op : reference::OPS) {
      if (is_refused<T>(op)) continue;
      for (const Memory memory : MEMORIES) {
        for (const std::size_t base : {0, 1, 65, 513}) {
          check_reduce_scatter<T>(world(), {op, memory, true, base});
          check_reduce_scatter<T>(world(), {op, memory, false, base});
        }
      }
    }
  });
}

RANKS_TEST(ReduceScatter, LargeParts, Ranks(2, 3, 4), EveryBackend()) {
  check_reduce_scatter<float>(world(), {ReduceOp::SUM, Memory::PRIVATE, true, 200003});
  check_reduce_scatter<BFloat16>(world(), {ReduceOp::AVG, Memory::SHARED, false, 100003});
}

// One buffer in rank order, with the output inside it.
RANKS_TEST(ReduceScatter, InPlace, Ranks(1, 2, 3, 4), EveryBackend()) {
  constexpr std::size_t COUNT = 5000;
  std::vector<double> all(COUNT * static_cast<std::size_t>(size()));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<double>(i) + 1000.0 * rank();
  const auto mine = std::span(all).subspan(COUNT * static_cast<std::size_t>(rank()), COUNT);
  comm::reduce_scatter(world(), mine, std::span<const double>(all));
  for (std::size_t i = 0; i < COUNT; ++i) {
    const double index = static_cast<double>(COUNT) * rank() + static_cast<double>(i);
    ASSERT_EQ(mine[i], size() * index + 1000.0 * size() * (size() - 1) / 2) << i;
  }
}

RANKS_TEST(ReduceScatter, RefusesWhatDoesNotFit, Ranks(1, 2, 3), EveryBackend()) {
  std::vector<float> mine(4);
  const std::vector<float> all(4 * static_cast<std::size_t>(size()) + 1);
  EXPECT_THAT([&] { comm::reduce_scatter(world(), std::span(mine), std::span<const float>(all)); },
              ThrowsMessage<InvalidArgument>(HasSubstr("one input per rank is needed")));
  const std::vector<std::span<const float>> short_ones(static_cast<std::size_t>(size()),
                                                       std::span(all).first(3));
  EXPECT_THAT([&] { comm::reduce_scatter(world(), std::span(mine), short_ones); },
              ThrowsMessage<InvalidArgument>(HasSubstr("has 3 elements, the rank's own buffer has 4")));
  EXPECT_THAT(
      [&] {
        comm::reduce_scatter(world(), std::span(mine), std::span(all).first(all.size() - 1), ReduceOp::BXOR);
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("no bxor of float32")));
  comm::reduce_scatter(world(), std::span(mine), std::span(all).first(all.size() - 1));
}

}  // namespace
}  // namespace lockstep

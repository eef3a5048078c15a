#include "lockstep/comm/collectives/all_reduce.h"

#include <numeric>

#include "lockstep/base/error.h"
#include "testing/buffers.h"
#include "testing/lacking.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

using reference::combine;
using reference::is_refused;
using reference::nearest;
using reference::sample;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

template <typename T>
void check_all_reduce(const ProcessGroup& group, ReduceOp op, Memory memory, std::size_t count) {
  SCOPED_TRACE(str(name_of(op), " of ", name_of(dtype_of<T>()), ", ", count, " elements, ",
                   MEMORY_NAMES[static_cast<int>(memory)]));
  const std::uint64_t seed = count + static_cast<std::uint64_t>(op);
  const Buffer<T> x(group, memory, count);
  x.fill([&](std::size_t i) { return sample<T>(group.rank(), i, seed); });
  if (is_lacking(group, dtype_of<T>(), op))
    return expect_lacking([&] { comm::all_reduce(group, x.span(), op); });
  if (is_rounded_by_levels(group, dtype_of<T>())) return;  // the test SumsOfSmallNumbersAreExact covers it
  comm::all_reduce(group, x.span(), op);
  EXPECT_EQ(
      x.difference([&](std::size_t i) { return combine<T>(op, samples_of_all<T>(group.size(), i, seed)); }),
      "");
}

// Counts around vector widths and slice borders.
RANKS_TEST(AllReduce, EveryDtypeOperatorAndMemory, Ranks(1, 2, 3, 4), EveryBackend()) {
  reference::for_each_dtype([&]<typename T>() {
    for (const ReduceOp op : reference::OPS) {
      if (is_refused<T>(op)) continue;
      for (const Memory memory : MEMORIES) {
        for (const std::size_t count : {0, 1, 2, 63, 64, 65, 511, 513, 1000}) {
          check_all_reduce<T>(world(), op, memory, count);
        }
      }
    }
  });
}

RANKS_TEST(AllReduce, ManySlices, Ranks(1, 2, 3, 4), EveryBackend()) {
  reference::for_each_dtype([&]<typename T>() {
    if (!reference::THOROUGH && !reference::IS_HALF<T>) return;
    for (const Memory memory : MEMORIES) {
      check_all_reduce<T>(world(), ReduceOp::SUM, memory, 100003);
      check_all_reduce<T>(world(), is_refused<T>(ReduceOp::MAX) ? ReduceOp::AVG : ReduceOp::MAX, memory,
                          32768);
    }
    check_all_reduce<T>(world(), ReduceOp::SUM, Memory::PRIVATE, 1 << 20);
    check_all_reduce<T>(world(), ReduceOp::SUM, Memory::SHARED, 1 << 20);
  });
}

// The same without the reference's tree: small numbers are added exactly in any order.
RANKS_TEST(AllReduce, SumsOfSmallNumbersAreExact, Ranks(1, 2, 3, 4), EveryBackend()) {
  reference::for_each_dtype([&]<typename T>() {
    if constexpr (!std::is_same_v<T, bool>) {
      // The test EveryDtypeOperatorAndMemory covers it.
      if (is_lacking(world(), dtype_of<T>(), ReduceOp::SUM)) return;
      const auto number = [](double value) {
        if constexpr (reference::IS_HALF<T>) {
          return nearest<T>(value);
        } else {
          return static_cast<T>(value);
        }
      };
      const Buffer<T> x(world(), Memory::PRIVATE, 200);
      x.fill([&](std::size_t i) { return number(rank() + static_cast<double>(i % 10)); });
      comm::all_reduce(world(), x.span());
      const double ranks = size();
      EXPECT_EQ(x.difference([&](std::size_t i) {
        return number(ranks * (ranks - 1) / 2 + ranks * static_cast<double>(i % 10));
      }),
                "")
          << name_of(dtype_of<T>());
    }
  });
}

RANKS_TEST(AllReduce, RanksMayUseDifferentMemory, Ranks(2, 3, 4), EveryBackend()) {
  for (std::size_t shift = 0; shift < 4; ++shift) {
    for (const std::size_t count : {65UL, 100003UL}) {
      const Memory mine = MEMORIES[(static_cast<std::size_t>(rank()) + shift) % 4];
      check_all_reduce<float>(world(), ReduceOp::SUM, mine, count);
      check_all_reduce<BFloat16>(world(), ReduceOp::AVG, mine, count);
    }
  }
}

// Several ranges of one shared allocation at once, like gradient buckets.
RANKS_TEST(AllReduce, PartsOfOneSharedBlock, Ranks(1, 2, 3, 4), EveryBackend()) {
  constexpr std::size_t PARTS = 7;
  constexpr std::size_t COUNT = 10007;
  const auto memory = world().allocate_shared(PARTS * COUNT * sizeof(double));
  const std::span<double> all(static_cast<double*>(memory.get()), PARTS * COUNT);
  std::iota(all.begin(), all.end(), 1000.0 * rank());
  std::vector<Work> works;
  for (std::size_t part = 0; part < PARTS; ++part) {
    works.push_back(
        comm::all_reduce(world(), all.subspan(part * COUNT, COUNT), ReduceOp::SUM, /*async_op=*/true));
  }
  for (Work& work : works) work.wait();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const double expected = size() * static_cast<double>(i) + 1000.0 * size() * (size() - 1) / 2;
    ASSERT_EQ(all[i], expected) << i;
  }
}

RANKS_TEST(AllReduce, SharedMemoryIsZeroedAlignedAndReused, Ranks(1, 3), EveryBackend()) {
  for (int round = 0; round < (reference::THOROUGH ? 200 : 20); ++round) {
    const std::size_t bytes = (std::size_t{1} << 20U) + static_cast<std::size_t>(round) * 4096;
    const auto memory = world().allocate_shared(bytes);
    ASSERT_EQ(reinterpret_cast<std::uintptr_t>(memory.get()) % 64, 0U);
    const std::span<std::uint64_t> x(static_cast<std::uint64_t*>(memory.get()), bytes / 8);
    ASSERT_EQ(std::count(x.begin(), x.end(), 0U), static_cast<std::ptrdiff_t>(x.size())) << round;
    std::fill(x.begin(), x.end(), 1);
    comm::all_reduce(world(), x);
    ASSERT_EQ(x.back(), static_cast<std::uint64_t>(size()));
  }
}

RANKS_TEST(AllReduce, RefusesWhatTorchRefuses, Ranks(1, 2), EveryBackend()) {
  int refused = 0;
  reference::for_each_dtype([&]<typename T>() {
    for (const ReduceOp op : reference::OPS) {
      if (!is_refused<T>(op)) continue;
      ++refused;
      const Buffer<T> x(world(), Memory::PRIVATE, 3);
      EXPECT_THAT([&] { comm::all_reduce(world(), x.span(), op); },
                  ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("all_reduce"), HasSubstr(name_of(op).data()),
                                                       HasSubstr(name_of(dtype_of<T>()).data()))));
    }
  });
  // AVG of integers and bool; PRODUCT, MIN, MAX of complex; bit operators of floating point and complex
  EXPECT_EQ(refused, reference::THOROUGH ? 9 + 2 * 3 + 6 * 3 : 1 + 3 + 4 * 3);
  comm::all_reduce(world(), std::span<float>());  // the group stays usable
}

RANKS_TEST(AllReduce, RefusesBadBuffersBeforeAnythingIsSent, Ranks(1, 2), EveryBackend()) {
  alignas(8) std::byte bytes[64] = {};
  EXPECT_THAT([&] { comm::all_reduce(world(), nullptr, 3, DType::FLOAT32, ReduceOp::SUM); },
              ThrowsMessage<InvalidArgument>(HasSubstr("null")));
  EXPECT_THAT([&] { comm::all_reduce(world(), bytes + 1, 3, DType::FLOAT32, ReduceOp::SUM); },
              ThrowsMessage<InvalidArgument>(HasSubstr("aligned to 4 bytes")));
  EXPECT_THAT([&] { comm::all_reduce(world(), bytes, ~std::size_t{0} / 2, DType::FLOAT32, ReduceOp::SUM); },
              ThrowsMessage<InvalidArgument>(HasSubstr("too many")));
  comm::all_reduce(world(), nullptr, 0, DType::FLOAT32, ReduceOp::SUM);
}

}  // namespace
}  // namespace lockstep

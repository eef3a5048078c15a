#include "lockstep/comm/collectives/all_to_all.h"

#include <deque>

#include "lockstep/base/error.h"
#include "testing/buffers.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

using reference::sample;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// The number of elements from rank a to rank b, which may be 0.
std::size_t count_from_to(bool even, std::size_t base, int a, int b) {
  return even ? base : base * static_cast<std::size_t>((2 * a + b) % 3) + static_cast<std::size_t>(a);
}

// The seed of the data from a to b, so that every pair has its own values.
std::uint64_t seed_from_to(int a, int b) { return static_cast<std::uint64_t>(100 * a + b); }

template <typename T>
void check_all_to_all(const ProcessGroup& group, Memory memory, bool even, std::size_t base) {
  SCOPED_TRACE(str(name_of(dtype_of<T>()), even ? ", even " : ", uneven ", base));
  const int me = group.rank();
  std::deque<Buffer<T>> out;
  std::deque<Buffer<T>> in;
  std::vector<std::span<const T>> inputs;
  std::vector<std::span<T>> outputs;
  for (int r = 0; r < group.size(); ++r) {
    out.emplace_back(group, memory, count_from_to(even, base, me, r)).fill([&](std::size_t i) {
      return sample<T>(0, i, seed_from_to(me, r));
    });
    inputs.push_back(out.back().span());
    outputs.push_back(in.emplace_back(group, memory, count_from_to(even, base, r, me)).span());
  }
  comm::all_to_all(group, inputs, outputs);
  for (int r = 0; r < group.size(); ++r) {
    EXPECT_EQ(in[static_cast<std::size_t>(r)].difference(
                  [&](std::size_t i) { return sample<T>(0, i, seed_from_to(r, me)); }),
              "")
        << "from rank " << r;
  }
}

RANKS_TEST(AllToAll, EveryDtypeAndMemory, Ranks(1, 2, 3, 4), EveryBackend()) {
  reference::for_each_dtype([&]<typename T>() {
    for (const Memory memory : MEMORIES) {
      for (const std::size_t base : {0, 1, 65, 1000}) {
        check_all_to_all<T>(world(), memory, true, base);
        check_all_to_all<T>(world(), memory, false, base);
      }
    }
  });
}

// Counts around the borders of portions, and several rounds through the window (backends/shared/passage.h).
RANKS_TEST(AllToAll, ThroughWindows, Ranks(2, 3, 4), Backends("thread", "shm"),
           Variable("LOCKSTEP_PATHS", "window")) {
  for (const bool even : {true, false}) {
    for (const std::size_t base : {0UL, 1UL, 65535UL, 65536UL, 65537UL, 300007UL}) {
      check_all_to_all<float>(world(), Memory::PRIVATE, even, base);
      check_all_to_all<float>(world(), (rank() & 1) == 0 ? Memory::PRIVATE_ODD : Memory::SHARED, even, base);
    }
  }
}

// Rank 1 expects one element more from rank 0 than rank 0 has for it.
RANKS_TEST(AllToAll, SizesThatDisagreeThroughWindows, Ranks(2, 3), Backends("thread", "shm"),
           Variable("LOCKSTEP_PATHS", "window")) {
  const auto ranks = static_cast<std::size_t>(size());
  const std::vector<std::size_t> given(ranks, 70000);
  std::vector<std::size_t> taken(ranks, 70000);
  if (rank() == 1) ++taken[0];
  const std::vector<float> out(70000 * ranks);
  std::vector<float> in(70000 * ranks + (rank() == 1 ? 1 : 0));
  EXPECT_THAT(
      [&] {
        comm::all_to_all(world(), std::span<const float>(out), std::span<const std::size_t>(given),
                         std::span(in), std::span<const std::size_t>(taken));
      },
      ThrowsMessage<Mismatch>(HasSubstr("expects 70001 elements of rank 0")));
}

RANKS_TEST(AllToAll, OneBufferWithEqualParts, Ranks(1, 2, 3, 4), EveryBackend()) {
  const auto ranks = static_cast<std::size_t>(size());
  std::vector<int> out(100 * ranks);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = 1000 * rank() + static_cast<int>(i / 100);
  std::vector<int> in(out.size());
  comm::all_to_all(world(), std::span<const int>(out), std::span(in));
  for (std::size_t i = 0; i < in.size(); ++i)
    ASSERT_EQ(in[i], 1000 * static_cast<int>(i / 100) + rank()) << i;
}

RANKS_TEST(AllToAll, OneBufferWithSplits, Ranks(1, 2, 3, 4), EveryBackend()) {
  std::vector<std::size_t> given;
  std::vector<std::size_t> taken;
  std::vector<int> out;
  std::vector<int> expected;
  for (int r = 0; r < size(); ++r) {
    given.push_back(count_from_to(false, 10, rank(), r));
    taken.push_back(count_from_to(false, 10, r, rank()));
    out.insert(out.end(), given.back(), 100 * rank() + r);
    expected.insert(expected.end(), taken.back(), 100 * r + rank());
  }
  std::vector<int> in(expected.size());
  comm::all_to_all(world(), std::span<const int>(out), std::span<const std::size_t>(given), std::span(in),
                   std::span<const std::size_t>(taken));
  EXPECT_EQ(in, expected);
}

RANKS_TEST(AllToAll, RefusesWhatDoesNotFit, Ranks(2, 3), EveryBackend()) {
  const auto ranks = static_cast<std::size_t>(size());
  const std::vector<float> out(4 * ranks);
  std::vector<float> in(4 * ranks);
  EXPECT_THAT(
      [&] { comm::all_to_all(world(), std::span<const float>(out), std::span(in).first(4 * ranks - 1)); },
      ThrowsMessage<InvalidArgument>(HasSubstr("one output per rank is needed")));
  EXPECT_THAT([&] { comm::all_to_all(world(), std::span<const float>(out).first(3 * ranks), std::span(in)); },
              ThrowsMessage<InvalidArgument>(HasSubstr("has 4 elements, the rank's own buffer has 3")));
  const std::vector<std::size_t> splits(ranks, 5);
  EXPECT_THAT(
      [&] {
        comm::all_to_all(world(), std::span<const float>(out), std::span<const std::size_t>(splits),
                         std::span(in), std::span<const std::size_t>(splits));
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("one input per rank is needed")));
  comm::all_to_all(world(), std::span<const float>(out), std::span(in));
}

}  // namespace
}  // namespace lockstep

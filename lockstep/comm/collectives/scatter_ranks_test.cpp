#include "lockstep/comm/collectives/scatter.h"

#include <deque>

#include "lockstep/base/error.h"
#include "testing/buffers.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

using reference::sample;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

template <typename T>
void check_scatter(const ProcessGroup& group, Memory memory, bool even, std::size_t base, int root) {
  SCOPED_TRACE(str(name_of(dtype_of<T>()), even ? ", even " : ", uneven ", base, ", from rank ", root));
  std::deque<Buffer<T>> all;
  std::vector<std::span<const T>> inputs;
  for (int r = 0; r < group.size() && group.rank() == root; ++r) {
    all.emplace_back(group, memory, count_of(even, base, r)).fill([&](std::size_t i) {
      return sample<T>(r, i, base);
    });
    inputs.push_back(all.back().span());
  }
  const Buffer<T> mine(group, memory, count_of(even, base, group.rank()));
  comm::scatter(group, mine.span(), inputs, root);
  EXPECT_EQ(mine.difference([&](std::size_t i) { return sample<T>(group.rank(), i, base); }), "");
}

RANKS_TEST(Scatter, EveryDtypeMemoryAndRoot, Ranks(1, 2, 3, 4), EveryBackend()) {
  reference::for_each_dtype([&]<typename T>() {
    for (const Memory memory : MEMORIES) {
      for (const std::size_t base : {0, 1, 65, 1000}) {
        for (int root = 0; root < size(); ++root) {
          check_scatter<T>(world(), memory, true, base, root);
          check_scatter<T>(world(), memory, false, base, root);
        }
      }
    }
  });
}

// The root may also overwrite its input as soon as the call has returned.
RANKS_TEST(Scatter, OneInputInRankOrder, Ranks(1, 2, 3, 4), EveryBackend()) {
  std::vector<std::int64_t> mine(1000);
  for (int round = 0; round < 20; ++round) {
    const int root = round % size();
    std::vector<std::int64_t> all(rank() == root ? mine.size() * static_cast<std::size_t>(size()) : 0);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int64_t>(i) + round;
    comm::scatter(world(), std::span(mine), std::span<const std::int64_t>(all), root);
    std::fill(all.begin(), all.end(), -1);
    for (std::size_t i = 0; i < mine.size(); ++i)
      ASSERT_EQ(mine[i], rank() * 1000 + static_cast<std::int64_t>(i) + round);
  }
}

RANKS_TEST(Scatter, InputsAreTheRootsAlone, Ranks(1, 2, 3), EveryBackend()) {
  std::vector<float> mine(4);
  const std::vector<float> all(4 * static_cast<std::size_t>(size()));
  const std::span<const float> input(all);
  if (rank() == 0) {
    EXPECT_THAT([&] { comm::scatter(world(), std::span(mine), std::span<const float>(), 0); },
                ThrowsMessage<InvalidArgument>(HasSubstr("one input per rank is needed")));
  } else {
    EXPECT_THAT([&] { comm::scatter(world(), std::span(mine), input, 0); },
                ThrowsMessage<InvalidArgument>(HasSubstr("only the root, rank 0, sends")));
  }
  EXPECT_THAT([&] { comm::scatter(world(), std::span(mine), input, -1); },
              ThrowsMessage<InvalidArgument>(HasSubstr("root -1")));
  comm::scatter(world(), std::span(mine), rank() == 0 ? input : std::span<const float>(), 0);
}

}  // namespace
}  // namespace lockstep

#include "lockstep/comm/collectives/gather.h"

#include <deque>

#include "lockstep/base/error.h"
#include "lockstep/comm/collectives/point_to_point.h"
#include "testing/buffers.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

using reference::sample;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

template <typename T>
void check_gather(const ProcessGroup& group, Memory memory, bool even, std::size_t base, int root) {
  SCOPED_TRACE(str(name_of(dtype_of<T>()), even ? ", even " : ", uneven ", base, ", to rank ", root));
  const Buffer<T> mine(group, memory, count_of(even, base, group.rank()));
  mine.fill([&](std::size_t i) { return sample<T>(group.rank(), i, base); });
  std::deque<Buffer<T>> all;
  std::vector<std::span<T>> outputs;
  for (int r = 0; r < group.size() && group.rank() == root; ++r) {
    outputs.push_back(all.emplace_back(group, memory, count_of(even, base, r)).span());
  }
  comm::gather(group, std::span<const T>(mine.span()), outputs, root);
  for (std::size_t r = 0; r < all.size(); ++r) {
    EXPECT_EQ(all[r].difference([&](std::size_t i) { return sample<T>(static_cast<int>(r), i, base); }), "")
        << r;
  }
}

RANKS_TEST(Gather, EveryDtypeMemoryAndRoot, Ranks(1, 2, 3, 4), EveryBackend()) {
  reference::for_each_dtype([&]<typename T>() {
    for (const Memory memory : MEMORIES) {
      for (const std::size_t base : {0, 1, 65, 1000}) {
        for (int root = 0; root < size(); ++root) {
          check_gather<T>(world(), memory, true, base, root);
          check_gather<T>(world(), memory, false, base, root);
        }
      }
    }
  });
}

RANKS_TEST(Gather, OneOutputInRankOrder, Ranks(1, 2, 3, 4), EveryBackend()) {
  const std::vector<std::int64_t> mine(1000, rank());
  for (int root = 0; root < size(); ++root) {
    std::vector<std::int64_t> all(rank() == root ? mine.size() * static_cast<std::size_t>(size()) : 0, -1);
    comm::gather(world(), std::span<const std::int64_t>(mine), std::span(all), root);
    for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], static_cast<std::int64_t>(i / 1000)) << i;
  }
}

// Ranks that only contribute are done at once: they do not wait for a late root.
RANKS_TEST(Gather, ContributorsDoNotWaitForTheRoot, Ranks(2, 3, 4), EveryBackend(), Except("nccl")) {
  std::vector<int> all(rank() == 0 ? static_cast<std::size_t>(size()) : 0);
  const int mine = rank() * 10;
  int token = 0;
  if (rank() == 0) {
    for (int r = 1; r < size(); ++r)
      comm::recv(world(), std::span(&token, 1), r);  // they have returned from gather
  }
  comm::gather(world(), std::span<const int>(&mine, 1), std::span(all), 0);
  if (rank() != 0) comm::send(world(), std::span<const int>(&token, 1), 0);
  for (std::size_t r = 0; r < all.size(); ++r) EXPECT_EQ(all[r], static_cast<int>(r) * 10);
}

RANKS_TEST(Gather, OutputsAreTheRootsAlone, Ranks(1, 2, 3), EveryBackend()) {
  const std::vector<float> mine(4);
  std::vector<float> all(4 * static_cast<std::size_t>(size()));
  const std::span<const float> input(mine);
  if (rank() == 0) {
    EXPECT_THAT([&] { comm::gather(world(), input, std::span<float>(), 0); },
                ThrowsMessage<InvalidArgument>(HasSubstr("one output per rank is needed")));
    EXPECT_THAT([&] { comm::gather(world(), input, std::span(all).first(3), 0); },
                ThrowsMessage<InvalidArgument>(HasSubstr("one output per rank is needed")));
  } else {
    EXPECT_THAT([&] { comm::gather(world(), input, std::span(all), 0); },
                ThrowsMessage<InvalidArgument>(HasSubstr("only the root, rank 0, receives")));
  }
  EXPECT_THAT([&] { comm::gather(world(), input, std::span(all), size()); },
              ThrowsMessage<InvalidArgument>(HasSubstr(str("root ", size()))));
  comm::gather(world(), input, rank() == 0 ? std::span(all) : std::span<float>(),
               0);  // the calls above sent nothing
}

}  // namespace
}  // namespace lockstep

#include "lockstep/comm/collectives/all_gather.h"

#include "lockstep/base/error.h"
#include "testing/buffers.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

using reference::sample;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// counts[r] is the number of elements that rank r contributes.
template <typename T>
void check_all_gather(const ProcessGroup& group, Memory memory, const std::vector<std::size_t>& counts) {
  SCOPED_TRACE(
      str(name_of(dtype_of<T>()), ", ", MEMORY_NAMES[static_cast<int>(memory)], ", rank 0 has ", counts[0]));
  const auto mine = static_cast<std::size_t>(group.rank());
  const Buffer<T> input(group, memory, counts[mine]);
  input.fill([&](std::size_t i) { return sample<T>(group.rank(), i); });
  std::vector<Buffer<T>> outputs;
  std::vector<std::span<T>> spans;
  for (int r = 0; r < group.size(); ++r) {
    outputs.emplace_back(group, memory, counts[static_cast<std::size_t>(r)]);
    spans.push_back(outputs.back().span());
  }
  comm::all_gather(group, std::span<const T>(input.span()), spans);
  for (int r = 0; r < group.size(); ++r) {
    EXPECT_EQ(outputs[static_cast<std::size_t>(r)].difference([&](std::size_t i) { return sample<T>(r, i); }),
              "")
        << r;
  }
  EXPECT_EQ(input.difference([&](std::size_t i) { return sample<T>(group.rank(), i); }), "")
      << "the input changed";
}

RANKS_TEST(AllGather, EveryDtypeAndMemory, Ranks(1, 2, 3, 4), EveryBackend()) {
  reference::for_each_dtype([&]<typename T>() {
    for (const Memory memory : MEMORIES) {
      for (const std::size_t count : {0, 1, 63, 64, 65, 1000, reference::THOROUGH ? 100003 : 2000}) {
        check_all_gather<T>(world(), memory,
                            std::vector<std::size_t>(static_cast<std::size_t>(size()), count));
      }
    }
  });
}

RANKS_TEST(AllGather, UnevenAndEmptyContributions, Ranks(1, 2, 3, 4), EveryBackend()) {
  const std::vector<std::vector<std::size_t>> tables = {{0, 1, 2, 3},
                                                        {3, 0, 0, 7},
                                                        {100003, 1, 0, 64},
                                                        {0, 0, 0, reference::THOROUGH ? 1 << 20 : 100},
                                                        {5, 4, 3, 2}};
  reference::for_each_dtype([&]<typename T>() {
    for (std::vector<std::size_t> counts : tables) {
      counts.resize(static_cast<std::size_t>(size()));
      check_all_gather<T>(world(), Memory::PRIVATE, counts);
    }
  });
}

// Counts around the borders of portions, and several rounds through the window (backends/shared/passage.h).
RANKS_TEST(AllGather, ThroughWindows, Ranks(2, 3, 4), Backends("thread", "shm"),
           Variable("LOCKSTEP_PATHS", "window")) {
  for (const std::size_t count : {1UL, 65535UL, 65536UL, 65537UL, 300007UL}) {
    std::vector<std::size_t> counts(static_cast<std::size_t>(size()), count);
    check_all_gather<float>(world(), Memory::PRIVATE, counts);
    counts[0] = count / 3;
    counts[1] = 0;
    check_all_gather<float>(world(), Memory::PRIVATE_ODD, counts);
    check_all_gather<float>(world(), (rank() & 1) == 0 ? Memory::PRIVATE : Memory::SHARED, counts);
  }
}

RANKS_TEST(AllGather, OneOutputInRankOrder, Ranks(1, 2, 3, 4), EveryBackend()) {
  const std::vector<int> mine = {10 * rank(), 10 * rank() + 1};
  std::vector<int> all(2 * static_cast<std::size_t>(size()), -1);
  comm::all_gather(world(), std::span<const int>(mine), std::span(all));
  for (int r = 0; r < size(); ++r) {
    EXPECT_EQ(all[2 * static_cast<std::size_t>(r)], 10 * r);
    EXPECT_EQ(all[2 * static_cast<std::size_t>(r) + 1], 10 * r + 1);
  }
}

// Like MPI_IN_PLACE: the input is this rank's part of the output.
RANKS_TEST(AllGather, InPlace, Ranks(1, 2, 3, 4), EveryBackend()) {
  constexpr std::size_t COUNT = 70001;
  std::vector<std::int64_t> all(COUNT * static_cast<std::size_t>(size()), -1);
  const auto mine = std::span(all).subspan(COUNT * static_cast<std::size_t>(rank()), COUNT);
  std::fill(mine.begin(), mine.end(), rank());
  comm::all_gather(world(), std::span<const std::int64_t>(mine), std::span(all));
  for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], static_cast<std::int64_t>(i / COUNT)) << i;
}

RANKS_TEST(AllGather, RefusesOutputsThatDoNotFit, Ranks(1, 2, 3), EveryBackend()) {
  const std::vector<float> mine(4);
  const std::span<const float> input(mine);
  std::vector<float> wrong(4 * static_cast<std::size_t>(size()) + 1);
  EXPECT_THAT([&] { comm::all_gather(world(), input, std::span(wrong)); },
              ThrowsMessage<InvalidArgument>(
                  AllOf(HasSubstr("all_gather"), HasSubstr(str("one output of ", 4 * size())))));
  std::vector<std::span<float>> outputs(static_cast<std::size_t>(size()), std::span(wrong).first(3));
  EXPECT_THAT([&] { comm::all_gather(world(), input, outputs); },
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("has 3 elements"), HasSubstr("input has 4"))));
  outputs.emplace_back();
  EXPECT_THAT([&] { comm::all_gather(world(), input, outputs); },
              ThrowsMessage<InvalidArgument>(HasSubstr("one output per rank")));
  std::vector<float> all(4 * static_cast<std::size_t>(size()));
  comm::all_gather(world(), input, std::span(all));  // the calls above sent nothing
}

}  // namespace
}  // namespace lockstep

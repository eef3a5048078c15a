#include "cli/bench_bound.h"

#include <gmock/gmock.h>

namespace lockstep::cli {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr std::size_t COUNT =
    24 * 1000;  // a multiple of all numbers of ranks; more than a piece of the kernels

// Rank r's whole buffer holds 10^r and its part 2 * 10^r; all ranks then make their moves.
struct World {
  explicit World(std::size_t size)
      : whole(size, std::vector<float>(COUNT)), second(whole), part(size, std::vector<float>(COUNT / size)) {
    float value = 1;
    for (std::size_t r = 0; r < size; ++r, value *= 10) {
      whole[r].assign(COUNT, value);
      part[r].assign(COUNT / size, 2 * value);
      buffers.push_back({whole[r].data(), second[r].data(), part[r].data()});
    }
  }
  void carry_out(Verb verb, const bound::Kernel& kernel) const {
    for (std::size_t r = 0; r < buffers.size(); ++r) {
      for (const bound::Move& move : bound_moves(verb, static_cast<int>(r), COUNT, buffers)) kernel.run(move);
    }
  }
  std::vector<std::vector<float>> whole, second, part;
  std::vector<BoundBuffers> buffers;
};

std::vector<float> part_of(const std::vector<float>& whole, std::size_t index, std::size_t ranks) {
  const auto share = static_cast<std::ptrdiff_t>(whole.size() / ranks);
  const auto begin = whole.begin() + static_cast<std::ptrdiff_t>(index) * share;
  return {begin, begin + share};
}

float power(std::size_t r) { return r == 0 ? 1.0F : 10 * power(r - 1); }

// The bound is one only if its moves do what the verb does.
class BoundMoves : public ::testing::TestWithParam<std::size_t> {};

TEST_P(BoundMoves, LeaveBehindWhatTheVerbDoes) {
  const std::size_t n = GetParam();
  const float sum = (power(n) - 1) / 9;
  for (const bound::Kernel& kernel : bound::KERNELS) {
    SCOPED_TRACE(kernel.name);
    World reduced(n);
    reduced.carry_out(Verb::ALL_REDUCE, kernel);
    for (const auto& whole : reduced.whole) EXPECT_THAT(whole, Each(sum));
    World root(n);
    root.carry_out(Verb::REDUCE, kernel);
    EXPECT_THAT(root.whole[0], Each(sum));
    World scattered(n);
    scattered.carry_out(Verb::REDUCE_SCATTER, kernel);
    for (const auto& part : scattered.part) EXPECT_THAT(part, Each(sum));
    World same(n);
    same.carry_out(Verb::BROADCAST, kernel);
    for (const auto& whole : same.whole) EXPECT_THAT(whole, Each(1));
    World gathered(n);
    gathered.carry_out(Verb::GATHER, kernel);
    World all(n);
    all.carry_out(Verb::ALL_GATHER, kernel);
    World exchanged(n);
    exchanged.carry_out(Verb::ALL_TO_ALL, kernel);
    World spread(n);
    spread.carry_out(Verb::SCATTER, kernel);
    for (std::size_t r = 0; r < n; ++r) {
      EXPECT_THAT(part_of(gathered.whole[0], r, n), Each(2 * power(r)));
      EXPECT_THAT(part_of(all.whole[n - 1], r, n), Each(2 * power(r)));
      EXPECT_THAT(part_of(exchanged.second[0], r, n), Each(power(r)));
      EXPECT_THAT(spread.part[r], Each(1));
    }
    World sent(n);
    sent.carry_out(Verb::SEND, kernel);
    if (n > 1) EXPECT_THAT(sent.whole[1], Each(1));
    if (n > 2) EXPECT_THAT(sent.whole[2], Each(100));
  }
}
INSTANTIATE_TEST_SUITE_P(Ranks, BoundMoves, ::testing::Values(1, 2, 3, 4));

TEST(BoundCpus, AreOfTheRanksAndNotShared) {
  EXPECT_THAT(bound_cpus({{3}, {5}}), ElementsAre(3, 5));
  EXPECT_THAT(bound_cpus({{0, 1}, {0, 1}}), ElementsAre(0, 1)) << "not pinned";
  EXPECT_THAT(bound_cpus({{0, 1}, {0, 1}, {0, 1}}), ElementsAre(0, 1)) << "more ranks than CPUs";
  EXPECT_THAT(bound_cpus({{0, 2}, {1, 3}}), ElementsAre(0, 1)) << "one of each core's two";
  EXPECT_THAT(bound_cpus({{}}), ElementsAre(0));
}

}  // namespace
}  // namespace lockstep::cli

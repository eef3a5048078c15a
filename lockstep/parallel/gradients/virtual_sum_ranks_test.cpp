#include "lockstep/parallel/gradients/virtual_sum.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "lockstep/comm/kernels/reduce_kernels.h"
#include "lockstep/tensor/collectives.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

// What a virtual rank contributes in a step; the same in every process.
at::Tensor contribution(int virtual_rank, int step, std::int64_t count, at::ScalarType type) {
  const auto random = at::detail::createCPUGenerator(static_cast<std::uint64_t>(100 * step + virtual_rank));
  return at::randn({count}, random, at::TensorOptions(at::kFloat)).to(type);
}

// What the kernel makes of the contributions of as many ranks.
at::Tensor average_of(const std::vector<at::Tensor>& contributions) {
  at::Tensor result = at::empty_like(contributions[0]);
  const auto elements = static_cast<std::size_t>(result.numel());
  std::vector<const std::byte*> inputs;
  for (const at::Tensor& one : contributions)
    inputs.push_back(static_cast<const std::byte*>(one.const_data_ptr()));
  auto* const output = static_cast<std::byte*>(result.data_ptr());
  reduce(dtype_of(result.scalar_type()), ReduceOp::AVG, inputs, std::span(&output, 1), elements);
  return result;
}

// One step of all turns of this process, with two buckets: the second one's contributions are twice as large.
std::vector<at::Tensor> sum_up(VirtualSum& sum, const VirtualRankPlan& plan, const ProcessGroup& group,
                               int step, std::int64_t count, at::ScalarType type) {
  const VirtualShare& share = plan.shares[static_cast<std::size_t>(group.rank())];
  const auto parts = std::make_shared<GradBucket::Parts>();
  const std::vector<at::Tensor> flats = {shared_empty({count}, type, group),
                                         shared_empty({count}, type, group)};
  sum.begin_round();
  for (int v = share.first; v <= share.last(); ++v) {
    sum.begin_turn(v);
    EXPECT_EQ(sum.is_last_turn(), v == share.last());
    std::vector<HookStep> steps;
    for (std::size_t i = 0; i < 2; ++i) {
      flats[i].copy_(contribution(v, step, count, type) * static_cast<double>(i + 1));
      steps.push_back(sum.run(GradBucket(i, i == 1, flats[i], parts, group)));
    }
    finish_steps(steps);
  }
  return flats;
}

RANKS_TEST(VirtualSum, HasTheBitsOfAsManyRanks, Ranks(1, 2, 3, 4), EveryBackend()) {
  for (const int virtual_ranks : {size(), size() + 1, 2 * size(), 7, 8}) {
    const VirtualRankPlan plan = virtual_rank_plan(virtual_ranks, size());
    for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kComplexFloat}) {
      VirtualSum sum(plan, rank());
      for (const std::int64_t count : {1, 33, 5000}) {
        for (int step = 0; step < 2; ++step) {  // the second one in the memory of the first
          std::vector<at::Tensor> contributions;
          for (int v = 0; v < virtual_ranks; ++v) contributions.push_back(contribution(v, step, count, type));
          const auto results = sum_up(sum, plan, world(), step, count, type);
          const at::Tensor expected = average_of(contributions);
          EXPECT_TRUE(results[0].equal(expected)) << type << ' ' << count << " elements, " << to_string(plan);
          EXPECT_TRUE(results[1].equal(expected * 2))
              << type << ' ' << count << " elements, " << to_string(plan);
        }
      }
    }
  }
}

RANKS_TEST(VirtualSum, ForgetsARoundThatWasLeft, Ranks(1, 2)) {
  const VirtualRankPlan plan = virtual_rank_plan(4, size());
  VirtualSum sum(plan, rank());
  const auto parts = std::make_shared<GradBucket::Parts>();
  sum.begin_round();
  sum.begin_turn(plan.shares[static_cast<std::size_t>(rank())].first);
  sum.run(GradBucket(0, true, at::full({9}, 1e9F), parts, world()));
  std::vector<at::Tensor> contributions;
  for (int v = 0; v < 4; ++v) contributions.push_back(contribution(v, 0, 9, at::kFloat));
  EXPECT_TRUE(sum_up(sum, plan, world(), 0, 9, at::kFloat)[0].equal(average_of(contributions)));
}

RANKS_TEST(VirtualSum, SaysWhatItIs, Ranks(1)) {
  EXPECT_EQ(VirtualSum(virtual_rank_plan(4, 1), 0).describe(), "average over 4 virtual ranks");
}

}  // namespace
}  // namespace lockstep

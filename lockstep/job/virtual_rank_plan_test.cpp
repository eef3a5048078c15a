#include "lockstep/job/virtual_rank_plan.h"

#include <gmock/gmock.h>

#include <random>

#include "lockstep/base/error.h"
#include "lockstep/comm/kernels/reduce_kernels.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(VirtualRankPlan, OfPowersOfTwoIsAnAllReduceOfSubtrees) {
  EXPECT_EQ(to_string(virtual_rank_plan(8, 2)),
            "8 virtual ranks on 2 processes: all_reduce of one subtree each\n"
            "process 0: 0 1 2 3, sums ((0+1)+(2+3))\n"
            "process 1: 4 5 6 7, sums ((4+5)+(6+7))\n");
  EXPECT_EQ(to_string(virtual_rank_plan(4, 1)),
            "4 virtual ranks on 1 processes: all_reduce of one subtree each\n"
            "process 0: 0 1 2 3, sums ((0+1)+(2+3))\n");
}

TEST(VirtualRankPlan, WithARightEdgeMayBeAnAllReduceToo) {
  EXPECT_EQ(to_string(virtual_rank_plan(3, 2)),
            "3 virtual ranks on 2 processes: all_reduce of one subtree each\n"
            "process 0: 0 1, sums (0+1)\n"
            "process 1: 2, sums 2\n");
  EXPECT_EQ(to_string(virtual_rank_plan(7, 1)),
            "7 virtual ranks on 1 processes: all_reduce of one subtree each\n"
            "process 0: 0 1 2 3 4 5 6, sums (((0+1)+(2+3))+((4+5)+6))\n");
}

TEST(VirtualRankPlan, OfOtherNumbersExchangesTheLargestSubtrees) {
  EXPECT_EQ(to_string(virtual_rank_plan(4, 3)),
            "4 virtual ranks on 3 processes: exchange of 3 subtrees\n"
            "process 0: 0 1, sums (0+1)\n"
            "process 1: 2, sums 2\n"
            "process 2: 3, sums 3\n");
  EXPECT_EQ(to_string(virtual_rank_plan(5, 2)),
            "5 virtual ranks on 2 processes: exchange of 4 subtrees\n"
            "process 0: 0 1 2, sums (0+1) 2\n"
            "process 1: 3 4, sums 3 4\n");
  EXPECT_EQ(to_string(virtual_rank_plan(7, 2)),
            "7 virtual ranks on 2 processes: all_reduce of one subtree each\n"
            "process 0: 0 1 2 3, sums ((0+1)+(2+3))\n"
            "process 1: 4 5 6, sums ((4+5)+6)\n");
}

TEST(VirtualRankPlan, KeepsOneSumForEachLevel) {
  VirtualTree tree(1024);
  std::size_t most = 0;
  for (int v = 0; v < 1024; ++v) {
    tree.push({.first = v});
    most = std::max(most, tree.sums().size());
  }
  EXPECT_EQ(most, 10U);
  EXPECT_EQ(tree.sums(), (std::vector<VirtualSubtree>{{.first = 0, .count = 1024, .level = 10}}));
}

TEST(VirtualRankPlan, NeedsAVirtualRankForEveryProcess) {
  EXPECT_THAT([] { virtual_rank_plan(2, 3); },
              ThrowsMessage<InvalidArgument>(
                  AllOf(HasSubstr("2 virtual ranks for 3 processes"), HasSubstr("at most 2 processes"))));
}

// A process's additions over its share and then over the roots of all processes, by the tree.
float add_up(VirtualTree& tree, std::vector<float>& sums, const VirtualSubtree& node, float value) {
  sums.push_back(value);
  for (int i = tree.push(node); i > 0; --i) {
    sums[sums.size() - 2] += sums.back();
    sums.pop_back();
  }
  return sums.front();
}

// The kernel of comm/kernels adds the values of V processes.
TEST(VirtualRankPlan, GivesTheBitsOfTheKernelOnEveryNumberOfProcesses) {
  std::mt19937 random(5);
  std::uniform_real_distribution<float> values(-1, 1);
  for (int v = 1; v <= 17; ++v) {
    std::vector<float> x(static_cast<std::size_t>(v));
    for (float& value : x) value = values(random);
    std::vector<const std::byte*> inputs;
    for (const float& value : x) inputs.push_back(reinterpret_cast<const std::byte*>(&value));
    float expected = 0;
    std::byte* const output = reinterpret_cast<std::byte*>(&expected);
    reduce(DType::FLOAT32, ReduceOp::SUM, inputs, std::span(&output, 1), 1);
    for (int n = 1; n <= v; ++n) {
      const VirtualRankPlan plan = virtual_rank_plan(v, n);
      VirtualTree rest(v);
      std::vector<float> roots;
      std::vector<const std::byte*> one_each;
      for (const VirtualShare& share : plan.shares) {
        VirtualTree tree(v);
        std::vector<float> sums;
        for (int i = share.first; i <= share.last(); ++i)
          add_up(tree, sums, {.first = i}, x[static_cast<std::size_t>(i)]);
        ASSERT_EQ(sums.size(), share.roots.size());
        for (std::size_t i = 0; i < sums.size(); ++i) add_up(rest, roots, share.roots[i], sums[i]);
      }
      ASSERT_EQ(roots.size(), 1U);
      EXPECT_EQ(roots[0], expected) << to_string(plan);
    }
  }
}

// If the plan is an all_reduce, the tree over the processes is the kernel's.
TEST(VirtualRankPlan, SaysAllReduceOnlyWhereTheTreeOverProcessesIsTheRest) {
  std::mt19937 random(6);
  std::uniform_real_distribution<float> values(-1, 1);
  int all_reduces = 0;
  for (int v = 1; v <= 33; ++v) {
    for (int n = 1; n <= v; ++n) {
      const VirtualRankPlan plan = virtual_rank_plan(v, n);
      if (!plan.one_root_each) continue;
      ++all_reduces;
      std::vector<float> sums;
      std::vector<float> x;
      for (const VirtualShare& share : plan.shares) {
        VirtualTree tree(v);
        std::vector<float> partial;
        for (int i = share.first; i <= share.last(); ++i) {
          x.push_back(values(random));
          add_up(tree, partial, {.first = i}, x.back());
        }
        sums.push_back(partial[0]);
      }
      const auto reduced = [](const std::vector<float>& from) {
        std::vector<const std::byte*> inputs;
        for (const float& value : from) inputs.push_back(reinterpret_cast<const std::byte*>(&value));
        float result = 0;
        std::byte* const output = reinterpret_cast<std::byte*>(&result);
        reduce(DType::FLOAT32, ReduceOp::SUM, inputs, std::span(&output, 1), 1);
        return result;
      };
      EXPECT_EQ(reduced(sums), reduced(x)) << to_string(plan);
    }
  }
  EXPECT_GT(all_reduces, 33 + 33);  // at least with one process, and with one per virtual rank
}

}  // namespace
}  // namespace lockstep

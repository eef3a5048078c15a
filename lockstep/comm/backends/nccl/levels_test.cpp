#include "lockstep/comm/backends/nccl/levels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <span>

namespace lockstep::nccl {
namespace {

using algorithms::Nodes;
using ::testing::Each;
using ::testing::ElementsAre;
using Kind = Step::Kind;
using Numbers = std::vector<std::int32_t>;

// Machines of so many ranks each, whose numbers go round: rank r is on machine r % machines.
Nodes scattered(int machines, int locals) {
  Nodes nodes(static_cast<std::size_t>(machines));
  for (int r = 0; r < machines * locals; ++r) nodes[static_cast<std::size_t>(r % machines)].push_back(r);
  return nodes;
}

TEST(NcclGrid, NeighboursAreThoseOfTheMachineAndThoseOfThePlace) {
  const auto grid = grid_of({{0, 1, 2}, {3, 4, 5}}, 4);
  ASSERT_TRUE(grid.has_value());
  EXPECT_THAT(grid->node, ElementsAre(3, 4, 5));
  EXPECT_THAT(grid->across, ElementsAre(1, 4));
  EXPECT_THAT(grid_of(scattered(2, 2), 3)->across, ElementsAre(2, 3));
}

TEST(NcclGrid, NoneWhereNothingIsWon) {
  EXPECT_FALSE(grid_of({{0, 1, 2, 3}}, 1)) << "one machine";
  EXPECT_FALSE(grid_of({{0}, {1}, {2}}, 1)) << "a machine for each rank";
  EXPECT_FALSE(grid_of({{0}, {1, 2}}, 1)) << "machines of different size";
  EXPECT_FALSE(grid_of({{0}}, 0));
}

// A request for an all_reduce of int32, in place.
Request sum_of(Numbers& numbers) {
  Request request;
  request.verb = Verb::ALL_REDUCE;
  request.dtype = DType::INT32;
  request.op = ReduceOp::SUM;
  request.count = numbers.size();
  request.input = numbers.data();
  request.output = numbers.data();
  return request;
}

// What NCCL does with the steps of a communicator's ranks, as its documentation says; only sums.
void carry_out(const std::vector<Step>& steps) {
  const auto input = [&](std::size_t r) { return static_cast<const std::int32_t*>(steps[r].input); };
  const auto output = [&](std::size_t r) { return static_cast<std::int32_t*>(steps[r].output); };
  const std::size_t count = steps.front().count;
  std::vector<Numbers> results(steps.size());
  for (std::size_t r = 0; r < steps.size(); ++r) {
    ASSERT_EQ(steps[r].kind, steps.front().kind);
    ASSERT_EQ(steps[r].count, count);
    const std::size_t from = steps[r].kind == Kind::REDUCE_SCATTER ? r * count : 0;
    for (std::size_t other = 0; other < steps.size(); ++other) {
      if (steps[r].kind == Kind::ALL_GATHER) {
        results[r].insert(results[r].end(), input(other), input(other) + count);
      } else {
        results[r].resize(count);
        for (std::size_t i = 0; i < count; ++i) results[r][i] += input(other)[from + i];
      }
    }
  }
  for (std::size_t r = 0; r < steps.size(); ++r) std::copy(results[r].begin(), results[r].end(), output(r));
}

// All ranks' stages, one after the other.
void carry_out_all(const std::vector<std::vector<Stage>>& stages,
                   const std::vector<std::optional<Grid>>& grids) {
  for (std::size_t s = 0; s < stages.front().size(); ++s) {
    const Level level = stages.front()[s].level;
    std::map<std::vector<int>, std::vector<Step>> communicators;
    for (std::size_t r = 0; r < stages.size(); ++r) {
      ASSERT_EQ(stages[r].size(), stages.front().size());
      ASSERT_EQ(stages[r][s].level, level);
      ASSERT_EQ(stages[r][s].steps.size(), 1U);
      const std::vector<int> ranks = level == Level::ALL    ? std::vector<int>{}
                                     : level == Level::NODE ? grids[r]->node
                                                            : grids[r]->across;
      communicators[ranks].push_back(stages[r][s].steps.front());
    }
    for (const auto& [ranks, steps] : communicators) carry_out(steps);
  }
}

TEST(NcclStages, EveryRankHasTheSumOfAll) {
  for (const auto& nodes :
       {scattered(2, 2), scattered(2, 3), scattered(3, 2), Nodes{{0, 1, 2, 3}, {4, 5, 6, 7}}}) {
    const std::size_t size = nodes.size() * nodes.front().size();
    for (const std::size_t count : {1U, 2U, 3U, 4U, 5U, 127U, 128U, 129U, 384U, 1000U, 1537U}) {
      std::vector<Numbers> numbers;
      std::vector<std::optional<Grid>> grids;
      std::vector<std::vector<Stage>> stages;
      for (std::size_t r = 0; r < size; ++r) numbers.emplace_back(count, static_cast<int>(r + 1));
      for (std::size_t r = 0; r < size; ++r) {
        for (std::size_t i = 0; i < count; ++i) numbers[r][i] *= static_cast<int>(i + 1);
        grids.push_back(grid_of(nodes, static_cast<int>(r)));
        stages.push_back(stages_of(sum_of(numbers[r]), static_cast<int>(r), static_cast<int>(size), grids[r],
                                   /*segment_bytes=*/512));
      }
      carry_out_all(stages, grids);
      Numbers expected(count);
      for (std::size_t i = 0; i < count; ++i) expected[i] = static_cast<int>((i + 1) * size * (size + 1) / 2);
      EXPECT_THAT(numbers, Each(expected)) << count << " on " << nodes.size() << " machines";
    }
  }
}

// [begin, end) of what a step of a communicator of so many ranks reads and writes.
std::pair<std::uintptr_t, std::uintptr_t> reach(const Step& step, std::size_t ranks) {
  const auto begin = [](const void* address) { return reinterpret_cast<std::uintptr_t>(address); };
  const std::size_t bytes = step.count * sizeof(std::int32_t);
  return {std::min(begin(step.input), begin(step.output)),
          std::max(begin(step.input) + (step.kind == Kind::REDUCE_SCATTER ? ranks : 1) * bytes,
                   begin(step.output) + (step.kind == Kind::ALL_GATHER ? ranks : 1) * bytes)};
}

// Two streams work on them side by side.
TEST(NcclStages, SegmentsShareNoMemory) {
  Numbers numbers(1001);
  const auto grid = grid_of(scattered(2, 3), 4);
  std::map<std::size_t, std::pair<std::uintptr_t, std::uintptr_t>> reaches;
  for (const Stage& stage : stages_of(sum_of(numbers), 4, 6, grid, 512)) {
    const auto one = reach(stage.steps.front(), 3);
    auto& whole = reaches.emplace(stage.segment, one).first->second;
    whole = {std::min(whole.first, one.first), std::max(whole.second, one.second)};
  }
  EXPECT_GT(reaches.size(), 3U);
  std::uintptr_t end = reinterpret_cast<std::uintptr_t>(numbers.data());
  for (const auto& [segment, place] : reaches) {
    EXPECT_EQ(place.first, end) << "segment " << segment;
    end = place.second;
  }
  EXPECT_EQ(end, reinterpret_cast<std::uintptr_t>(numbers.data() + numbers.size()));
}

// Between machines goes what is to be reduced once, over all ranks of a machine together.
TEST(NcclStages, EachRankHasItsShareBetweenMachines) {
  Numbers numbers(3 << 20);
  std::size_t across = 0;
  for (const Stage& stage : stages_of(sum_of(numbers), 1, 6, grid_of(scattered(2, 3), 1))) {
    if (stage.level == Level::ACROSS) across += stage.steps.front().count;
    EXPECT_NE(stage.level, Level::ALL);
  }
  EXPECT_EQ(across, numbers.size() / 3);
}

TEST(NcclStages, OneSegmentIsBetweenMachinesWhileOthersAreWithin) {
  Numbers numbers(4000000);
  EXPECT_EQ(to_text(stages_of(sum_of(numbers), 0, 4, grid_of({{0, 1}, {2, 3}}, 0))),
            "segment 0  node    ncclReduceScatter 1048576\n"
            "segment 0  across  ncclAllReduce 1048576\n"
            "segment 1  node    ncclReduceScatter 951424\n"
            "segment 1  across  ncclAllReduce 951424\n"
            "segment 0  node    ncclAllGather 1048576\n"
            "segment 1  node    ncclAllGather 951424\n");
}

TEST(NcclStages, WhatIsLeftOverGoesToAllAtOnce) {
  Numbers numbers(7);
  EXPECT_EQ(to_text(stages_of(sum_of(numbers), 0, 6, grid_of(scattered(2, 3), 0))),
            "segment 0  node    ncclReduceScatter 2\n"
            "segment 0  across  ncclAllReduce 2\n"
            "segment 0  node    ncclAllGather 2\n"
            "segment 1  all     ncclAllReduce 1\n");
  Numbers few(2);
  EXPECT_EQ(to_text(stages_of(sum_of(few), 0, 6, grid_of(scattered(2, 3), 0))),
            "segment 0  all     ncclAllReduce 2\n");
  Numbers none;
  EXPECT_TRUE(stages_of(sum_of(none), 0, 6, grid_of(scattered(2, 3), 0)).empty());
}

TEST(NcclStages, OneStageOfAllRanksWithoutAGrid) {
  Numbers numbers(7);
  EXPECT_EQ(to_text(stages_of(sum_of(numbers), 0, 3, std::nullopt)), "segment 0  all     ncclAllReduce 7\n");
  Request broadcast = sum_of(numbers);
  broadcast.verb = Verb::BROADCAST;
  EXPECT_EQ(to_text(stages_of(broadcast, 0, 4, grid_of(scattered(2, 2), 0))),
            "segment 0  all     ncclBroadcast 28\n");
}

}  // namespace
}  // namespace lockstep::nccl

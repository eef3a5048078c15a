// Collectives between nodes, as pictures. What comes out of them is in every_node_test.cpp.
#include <gtest/gtest.h>

#include "lockstep/comm/algorithms/schedule.h"

namespace lockstep::algorithms {
namespace {

Shape shape_of(const Nodes& nodes, int rank, std::size_t bytes) {
  Shape shape{.verb = Verb::ALL_REDUCE, .rank = rank, .element = 1, .count = bytes};
  for (const auto& node : nodes) shape.size += static_cast<int>(node.size());
  --shape.size;
  shape.nodes = nodes;
  return shape;
}

TEST(BetweenNodes, SmallOnesHaveOneLaneAndGoToAllNodesAtOnce) {
  EXPECT_EQ(to_text(make_schedule(shape_of({{0, 1}, {2, 3}, {4}}, 2, 80))),
            "step 0\n"
            "  local   reduce_scatter output[0,80) output[0,0) -> output[0,80)\n"
            "step 1\n"
            "  send    output[0,80) -> rank 4\n"
            "  send    output[0,80) -> rank 0\n"
            "  receive rank 4 -> scratch[128,208)\n"
            "  receive rank 0 -> scratch[0,80)\n"
            "  combine scratch[0,80) output[0,80) scratch[128,208) -> output[0,80)\n"
            "step 2\n"
            "  local   all_gather output[0,80) output[0,0)\n");
  EXPECT_EQ(to_text(make_schedule(shape_of({{0, 1}, {2, 3}, {4}}, 3, 80))),
            "step 0\n"
            "  local   reduce_scatter output[0,80) output[0,0) -> output[0,0)\n"
            "step 1\n"
            "step 2\n"
            "  local   all_gather output[0,80) output[0,0)\n");
}

TEST(BetweenNodes, LargeOnesHaveALaneForEveryRankOfTheSmallestNode) {
  const std::size_t bytes = std::size_t{384} << 10U;
  EXPECT_EQ(
      to_text(make_schedule(shape_of({{0, 1}, {2, 3}, {4, 5}}, 3, bytes))),
      "step 0\n"
      "  local   reduce_scatter output[0,196608) output[196608,393216) -> output[196608,393216)\n"
      "step 1\n"
      "  send    output[327680,393216) -> rank 5\n"
      "  send    output[196608,262144) -> rank 1\n"
      "  receive rank 5 -> scratch[65536,131072)\n"
      "  receive rank 1 -> scratch[0,65536)\n"
      "  combine scratch[0,65536) output[262144,327680) scratch[65536,131072) -> output[262144,327680)\n"
      "step 2\n"
      "  send    output[262144,327680) -> rank 5\n"
      "  send    output[262144,327680) -> rank 1\n"
      "  receive rank 5 -> output[327680,393216)\n"
      "  receive rank 1 -> output[196608,262144)\n"
      "step 3\n"
      "  local   all_gather output[0,196608) output[196608,393216)\n");
}

TEST(BetweenNodes, TwoNodesExchangeWhatTheirLanesHave) {
  const std::size_t bytes = std::size_t{256} << 10U;
  EXPECT_EQ(to_text(make_schedule(shape_of({{0, 1}, {2, 3}}, 3, bytes))),
            "step 0\n"
            "  local   reduce_scatter output[0,131072) output[131072,262144) -> output[131072,262144)\n"
            "step 1\n"
            "  send    output[131072,262144) -> rank 1\n"
            "  receive rank 1 -> scratch[0,131072)\n"
            "  combine scratch[0,131072) output[131072,262144) -> output[131072,262144)\n"
            "step 2\n"
            "  local   all_gather output[0,131072) output[131072,262144)\n");
}

TEST(BetweenNodes, OrderIsKeptByEqualPowersOfTwoInARow) {
  for (const Nodes& nodes : {Nodes{{0, 1}, {2, 3}}, Nodes{{0, 1}, {2}}, Nodes{{0}, {1}, {2}},
                             Nodes{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10}}})
    EXPECT_TRUE(keeps_order(nodes)) << nodes.size();
  for (const Nodes& nodes : {Nodes{{0}, {1, 2}}, Nodes{{0, 2}, {1, 3}}, Nodes{{0, 1, 2}, {3, 4, 5}},
                             Nodes{{0, 1}, {2}, {3, 4}}, Nodes{{0, 1}, {3, 2}}})
    EXPECT_FALSE(keeps_order(nodes)) << nodes.size();
}

TEST(BetweenNodes, ASmallBroadcastGoesToOneRankOfEachNode) {
  const auto text = [](int rank) {
    Shape shape = shape_of({{0, 1}, {2, 3}, {4}}, rank, 80);
    shape.verb = Verb::BROADCAST;
    shape.root = 1;
    return to_text(make_schedule(shape));
  };
  EXPECT_EQ(text(1),
            "step 0\n"
            "  local   broadcast output[0,80) from 1\n"
            "  send    output[0,80) -> rank 4\n"
            "  send    output[0,80) -> rank 3\n");
  EXPECT_EQ(text(0),
            "step 0\n"
            "  local   broadcast output[0,80) from 1\n");
  EXPECT_EQ(text(3),
            "step 0\n"
            "  receive rank 1 -> output[0,80)\n"
            "step 1\n"
            "  local   broadcast output[0,80) from 1\n");
}

TEST(BetweenNodes, WhatIsGatheredCrossesOnce) {
  const auto text = [](int rank, std::size_t bytes) {
    Shape shape = shape_of({{0}, {1, 2}}, rank, bytes);
    shape.verb = Verb::ALL_GATHER;
    shape.outputs = {10, 20, 30};
    return to_text(make_schedule(shape));
  };
  EXPECT_EQ(text(0, 10),
            "step 0\n"
            "  copy    input[0,10) -> outputs.0[0,10)\n"
            "  send    input[0,10) -> rank 1\n"
            "  receive rank 1 -> outputs.1[0,20)\n"
            "  receive rank 2 -> outputs.2[0,30)\n"
            "step 1\n");
  EXPECT_EQ(text(2, 30),
            "step 0\n"
            "  copy    input[0,30) -> outputs.2[0,30)\n"
            "  local   all_gather outputs.1[0,20) outputs.2[0,30)\n"
            "  send    input[0,30) -> rank 0\n"
            "step 1\n"
            "  local   all_gather outputs.0[0,10) outputs.0[0,0)\n");
}

}  // namespace
}  // namespace lockstep::algorithms

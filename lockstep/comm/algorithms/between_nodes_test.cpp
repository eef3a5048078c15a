// all_reduce between nodes, as pictures, and all ranks' tables carried out in one process: the result is the sum of all ranks'
// contributions, and each node sends no more than 2 (M - 1) / M of the bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "lockstep/comm/algorithms/schedule.h"

namespace lockstep::algorithms {
namespace {

using Bytes = std::vector<unsigned char>;

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
            "  local   reduce_scatter output[0,80) output[0,0)\n"
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
            "  local   reduce_scatter output[0,80) output[0,0)\n"
            "step 1\n"
            "step 2\n"
            "  local   all_gather output[0,80) output[0,0)\n");
}

TEST(BetweenNodes, LargeOnesHaveALaneForEveryRankOfTheSmallestNode) {
  const std::size_t bytes = std::size_t{384} << 10U;
  EXPECT_EQ(
      to_text(make_schedule(shape_of({{0, 1}, {2, 3}, {4, 5}}, 3, bytes))),
      "step 0\n"
      "  local   reduce_scatter output[0,196608) output[196608,393216)\n"
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
            "  local   reduce_scatter output[0,131072) output[131072,262144)\n"
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

// ---- carried out
struct World {
  World(Nodes layout, std::size_t bytes) : nodes(std::move(layout)) {
    before.resize(ranks());
    for (std::size_t r = 0; r < ranks(); ++r) {
      tables.push_back(make_schedule(shape_of(nodes, static_cast<int>(r), bytes)));
      scratch.emplace_back(tables.back().scratch_bytes);
      buffers.emplace_back(bytes);
      for (std::size_t i = 0; i < bytes; ++i) buffers[r][i] = contribution(r, i);
    }
  }

  static unsigned char contribution(std::size_t rank, std::size_t i) {
    return static_cast<unsigned char>(i * 7 + i / 251 + rank * 31 + 1);
  }
  static void add(const unsigned char* input, std::size_t count, unsigned char* output) {
    std::transform(input, input + count, output, output,
                   [](unsigned a, unsigned b) { return static_cast<unsigned char>(a + b); });
  }
  std::size_t ranks() const {
    std::size_t count = 0;
    for (const auto& node : nodes) count += node.size();
    return count;
  }
  std::size_t node_of(std::size_t rank) const {
    std::size_t n = 0;
    while (std::find(nodes[n].begin(), nodes[n].end(), static_cast<int>(rank)) == nodes[n].end()) ++n;
    return n;
  }
  unsigned char* at(std::size_t rank, const Place& place) {
    return (place.area == Area::SCRATCH ? scratch : buffers)[rank].data() + place.offset;
  }

  // The tables of all ranks have as many steps, and step k of one needs nothing of a later step of another.
  void run() {
    for (std::size_t k = 0; k < tables[0].steps.size(); ++k) {
      for (const auto& node : nodes) local_parts(node, k);
      transfer(k);
      for (std::size_t r = 0; r < ranks(); ++r) {
        for (const Combine& combine : tables[r].steps[k].combines) carry_out(r, combine);
      }
    }
  }

  void local_parts(const std::vector<int>& node, std::size_t k) {
    const auto& first = tables[static_cast<std::size_t>(node[0])].steps[k].locals;
    for (std::size_t l = 0; l < first.size(); ++l) {
      for (const int rank : node)
        before[static_cast<std::size_t>(rank)] = buffers[static_cast<std::size_t>(rank)];
      for (std::size_t i = 0; i < node.size(); ++i) {
        const auto rank = static_cast<std::size_t>(node[i]);
        const Local& local = tables[rank].steps[k].locals.at(l);
        ASSERT_EQ(local.verb, first[l].verb);
        ASSERT_EQ(local.parts.size(), node.size());
        for (std::size_t j = 0; j < node.size(); ++j) {
          const auto& part = local.parts[j];
          ASSERT_EQ(part.bytes, first[l].parts[j].bytes);
          if (local.verb == Verb::REDUCE_SCATTER && j != i) continue;
          auto* output = buffers[rank].data() + part.place.offset;
          const auto input_of = [&](int other) {
            return before[static_cast<std::size_t>(other)].data() + part.place.offset;
          };
          if (local.verb == Verb::ALL_GATHER) {
            std::copy_n(input_of(node[j]), part.bytes, output);
          } else {
            std::fill_n(output, part.bytes, static_cast<unsigned char>(0));
            for (const int other : node) add(input_of(other), part.bytes, output);
          }
        }
      }
    }
  }

  void transfer(std::size_t k) {
    std::map<std::tuple<std::size_t, std::size_t, std::uint32_t>, Bytes> mail;
    for (std::size_t r = 0; r < ranks(); ++r) {
      for (const Transfer& send : tables[r].steps[k].sends) {
        const auto* data = at(r, send.place);
        const auto peer = static_cast<std::size_t>(send.peer);
        ASSERT_TRUE(mail.emplace(std::tuple(r, peer, send.label), Bytes(data, data + send.bytes)).second);
        if (node_of(r) != node_of(peer)) sent[node_of(r)] += send.bytes;
      }
    }
    for (std::size_t r = 0; r < ranks(); ++r) {
      for (const Transfer& receive : tables[r].steps[k].receives) {
        const auto message = mail.extract({static_cast<std::size_t>(receive.peer), r, receive.label});
        ASSERT_FALSE(message.empty()) << "step " << k << ", rank " << r << " from " << receive.peer;
        ASSERT_EQ(message.mapped().size(), receive.bytes);
        std::copy(message.mapped().begin(), message.mapped().end(), at(r, receive.place));
      }
    }
    EXPECT_TRUE(mail.empty());
  }

  void carry_out(std::size_t rank, const Combine& combine) {
    EXPECT_TRUE(combine.of_nodes);
    Bytes sum(combine.bytes);
    for (const Place& input : combine.inputs) add(at(rank, input), combine.bytes, sum.data());
    std::copy(sum.begin(), sum.end(), at(rank, combine.output));
  }

  const Nodes nodes;
  std::vector<Schedule> tables;
  std::vector<Bytes> buffers;
  std::vector<Bytes> before;  // the buffers, when the local part began
  std::vector<Bytes> scratch;
  std::map<std::size_t, std::size_t> sent;  // bytes to other nodes, by node
};

TEST(BetweenNodes, EveryRankGetsTheSumOfAll) {
  for (const Nodes& nodes : {Nodes{{0, 1}, {2, 3}}, Nodes{{0}, {1, 2}}, Nodes{{0, 2, 4}, {1, 3, 5}, {6, 7}},
                             Nodes{{0, 1, 2, 3}, {4, 5}}}) {
    const std::size_t large = nodes.size() == 2 && nodes[0].size() < 3 ? 5 * SEGMENT + 77 : SEGMENT + 1;
    for (const std::size_t bytes :
         {std::size_t{0}, std::size_t{1}, std::size_t{4099}, SMALL, SMALL + 1, std::size_t{1000003}, large}) {
      World world(nodes, bytes);
      world.run();
      Bytes expected(bytes);
      unsigned of_ranks = 0;
      for (std::size_t r = 0; r < world.ranks(); ++r) of_ranks += World::contribution(r, 0);
      for (std::size_t i = 0; i < bytes; ++i)
        expected[i] = static_cast<unsigned char>(of_ranks + world.ranks() * (i * 7 + i / 251));
      for (std::size_t r = 0; r < world.ranks(); ++r)
        EXPECT_TRUE(world.buffers[r] == expected) << bytes << " bytes, rank " << r;
      const double m = static_cast<double>(nodes.size());
      for (const auto& [node, sent] : world.sent) {
        if (bytes > SEGMENT)
          EXPECT_LE(static_cast<double>(sent), 1.02 * 2 * (m - 1) / m * static_cast<double>(bytes)) << node;
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::algorithms

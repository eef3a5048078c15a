// Collectives between nodes, all ranks' tables carried out in one process: the results are closed forms, and
// no node sends more than it must: in an all_reduce 2 (M - 1) / M of the bytes, of what belongs to one rank
// once to each other node.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "lockstep/comm/algorithms/schedule.h"

namespace lockstep::algorithms {
namespace {

using Bytes = std::vector<unsigned char>;

Shape shape_on(const Nodes& nodes, int rank, std::size_t bytes, Verb verb = Verb::ALL_REDUCE) {
  Shape shape{.verb = verb, .rank = rank, .element = 1, .count = bytes};
  shape.size = 0;
  for (const auto& node : nodes) shape.size += static_cast<int>(node.size());
  shape.nodes = nodes;
  return shape;
}

struct Buffers {
  Bytes input, output, scratch;
  std::vector<Bytes> inputs, outputs;
};

struct World {
  // The shape of rank r; `fill` sets its buffers.
  template <typename ShapeOf, typename Fill>
  World(Nodes layout, ShapeOf shape, Fill fill) : nodes(std::move(layout)) {
    for (std::size_t r = 0; r < ranks(); ++r) {
      tables.push_back(make_schedule(shape(static_cast<int>(r))));
      buffers.emplace_back();
      fill(r, buffers.back());
      buffers.back().scratch.resize(tables.back().scratch_bytes);
    }
  }

  static unsigned char contribution(std::size_t rank, std::size_t i) {
    return static_cast<unsigned char>(i * 7 + i / 251 + rank * 31 + 1);
  }
  static Bytes contribution_of(std::size_t rank, std::size_t bytes, std::size_t from = 0) {
    Bytes all(bytes);
    for (std::size_t i = 0; i < bytes; ++i) all[i] = contribution(rank, from + i);
    return all;
  }
  Bytes sum_of_all(std::size_t bytes, std::size_t from = 0) const {
    unsigned of_ranks = 0;
    for (std::size_t r = 0; r < ranks(); ++r) of_ranks += contribution(r, 0);
    Bytes sum(bytes);
    for (std::size_t i = 0; i < bytes; ++i)
      sum[i] = static_cast<unsigned char>(of_ranks + ranks() * ((from + i) * 7 + (from + i) / 251));
    return sum;
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
  std::size_t node_of(std::size_t rank) const { return home_of(nodes, static_cast<int>(rank)).node; }

  static unsigned char* at(Buffers& of, const Place& place, std::size_t bytes) {
    const auto index = static_cast<std::size_t>(place.index);
    Bytes* area = &of.scratch;
    if (place.area == Area::INPUT) area = &of.input;
    if (place.area == Area::OUTPUT) area = &of.output;
    if (place.area == Area::INPUTS) area = &of.inputs.at(index);
    if (place.area == Area::OUTPUTS) area = &of.outputs.at(index);
    EXPECT_LE(place.offset + bytes, area->size());
    return area->data() + place.offset;
  }

  // The steps of a node's ranks with something to do together come side by side; otherwise a rank may be
  // ahead. One after the other, each as far as it comes, until nobody gets on.
  void run() {
    at_.assign(ranks(), 0);
    begun_.assign(ranks(), false);
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t r = 0; r < ranks(); ++r) moved = advance(r) || moved;
      for (const auto& node : nodes) moved = meet(node) || moved;
    }
    for (std::size_t r = 0; r < ranks(); ++r) EXPECT_EQ(at_[r], tables[r].steps.size()) << "rank " << r;
    EXPECT_TRUE(mail_.empty());
  }

  // Rank r's copies, sends, receives and combines of the step it is in.
  bool advance(std::size_t r) {
    if (at_[r] == tables[r].steps.size()) return false;
    Step& step = tables[r].steps[at_[r]];
    if (!begun_[r]) {
      begun_[r] = true;
      for (const Copy& copy : step.copies)
        std::copy_n(at(buffers[r], copy.from, copy.bytes), copy.bytes, at(buffers[r], copy.to, copy.bytes));
      for (const Transfer& send : step.sends) post(r, send);
      return true;
    }
    const bool moved = receive(r, step);
    if (!step.receives.empty() || !step.locals.empty()) return moved;
    for (const Combine& combine : step.combines) carry_out(r, combine);
    ++at_[r];
    begun_[r] = false;
    return true;
  }

  void post(std::size_t r, const Transfer& send) {
    const auto* data = at(buffers[r], send.place, send.bytes);
    const auto peer = static_cast<std::size_t>(send.peer);
    ASSERT_TRUE(mail_.emplace(std::tuple(r, peer, send.label), Bytes(data, data + send.bytes)).second);
    ASSERT_NE(node_of(r), node_of(peer)) << "what is on one machine does not travel";
    sent[node_of(r)] += send.bytes;
  }

  bool receive(std::size_t r, Step& step) {
    return std::erase_if(step.receives, [&](const Transfer& receive) {
             const auto message = mail_.extract({static_cast<std::size_t>(receive.peer), r, receive.label});
             if (message.empty()) return false;
             EXPECT_EQ(message.mapped().size(), receive.bytes);
             std::copy(message.mapped().begin(), message.mapped().end(),
                       at(buffers[r], receive.place, receive.bytes));
             return true;
           }) > 0;
  }

  // The next thing that the ranks of a node do together, once all are there: first everything is read, then
  // written.
  bool meet(const std::vector<int>& node) {
    std::vector<Local> all;
    for (const int rank : node) {
      const auto r = static_cast<std::size_t>(rank);
      if (at_[r] == tables[r].steps.size() || !begun_[r] || tables[r].steps[at_[r]].locals.empty())
        return false;
      all.push_back(tables[r].steps[at_[r]].locals.front());
      EXPECT_EQ(all.back().verb, all[0].verb);
      EXPECT_EQ(all.back().root, all[0].root);
      EXPECT_EQ(all.back().parts.size(), all[0].verb == Verb::BROADCAST ? 1 : node.size());
    }
    const std::vector<Bytes> results = together(node, all);
    for (std::size_t i = 0; i < node.size(); ++i) {
      const auto r = static_cast<std::size_t>(node[i]);
      for (std::size_t part = 0; part < results.size(); ++part) {
        if (all[i].verb != Verb::REDUCE_SCATTER) write(r, all[i].parts[part], results[part]);
      }
      if (all[i].verb == Verb::REDUCE_SCATTER) write(r, all[i].result, results[i]);
      auto& locals = tables[r].steps[at_[r]].locals;
      locals.erase(locals.begin());
    }
    return true;
  }

  // Of a reduce_scatter by rank, else by part.
  std::vector<Bytes> together(const std::vector<int>& node, const std::vector<Local>& all) {
    const auto read = [&](std::size_t i, std::size_t part) {
      const auto& from = all[i].parts.at(part);
      const auto* data = at(buffers[static_cast<std::size_t>(node[i])], from.place, from.bytes);
      return Bytes(data, data + from.bytes);
    };
    if (all[0].verb == Verb::BROADCAST) return {read(static_cast<std::size_t>(all[0].root), 0)};
    std::vector<Bytes> results;
    for (std::size_t i = 0; i < all.size(); ++i) {
      results.push_back(read(all[0].verb == Verb::ALL_GATHER ? i : 0, i));
      for (std::size_t j = 1; j < all.size() && all[0].verb == Verb::REDUCE_SCATTER; ++j) {
        const Bytes more = read(j, i);
        EXPECT_EQ(more.size(), results[i].size());
        add(more.data(), std::min(more.size(), results[i].size()), results[i].data());
      }
    }
    return results;
  }

  template <typename Part> void write(std::size_t r, const Part& part, const Bytes& bytes) {
    ASSERT_EQ(part.bytes, bytes.size());
    std::copy(bytes.begin(), bytes.end(), at(buffers[r], part.place, bytes.size()));
  }

  void carry_out(std::size_t rank, const Combine& combine) {
    EXPECT_TRUE(combine.of_nodes);
    Bytes sum(combine.bytes);
    for (const Place& input : combine.inputs)
      add(at(buffers[rank], input, combine.bytes), combine.bytes, sum.data());
    std::copy(sum.begin(), sum.end(), at(buffers[rank], combine.output, sum.size()));
  }

  const Nodes nodes;
  std::vector<Schedule> tables;
  std::vector<Buffers> buffers;
  std::map<std::size_t, std::size_t> sent;  // bytes to other nodes, by node

 private:
  std::map<std::tuple<std::size_t, std::size_t, std::uint32_t>, Bytes> mail_;
  std::vector<std::size_t> at_;  // step
  std::vector<bool> begun_;
};

std::vector<Nodes> layouts() {
  return {{{0, 1}, {2, 3}},
          {{0}, {1, 2}},
          {{0, 2, 4}, {1, 3, 5}, {6, 7}},
          {{0, 1, 2, 3}, {4, 5}},
          {{0}, {1, 3}, {2}}};
}

std::vector<std::size_t> sizes_for(const Nodes& nodes) {
  const std::size_t large = nodes.size() == 2 && nodes[0].size() < 3 ? 5 * SEGMENT + 77 : SEGMENT + 1;
  return {0, 1, 4099, SMALL, SMALL + 1, 1000003, large};
}

TEST(EveryNode, EveryRankGetsTheSumOfAll) {
  for (const Nodes& nodes : layouts()) {
    for (const std::size_t bytes : sizes_for(nodes)) {
      World world(
          nodes, [&](int rank) { return shape_on(nodes, rank, bytes); },
          [&](std::size_t r, Buffers& mine) { mine.output = World::contribution_of(r, bytes); });
      world.run();
      const Bytes expected = world.sum_of_all(bytes);
      for (std::size_t r = 0; r < world.ranks(); ++r)
        EXPECT_TRUE(world.buffers[r].output == expected) << bytes << " bytes, rank " << r;
      const auto m = static_cast<double>(nodes.size());
      for (const auto& [node, sent] : world.sent) {
        if (bytes > SEGMENT)
          EXPECT_LE(static_cast<double>(sent), 1.02 * 2 * (m - 1) / m * static_cast<double>(bytes)) << node;
      }
    }
  }
}

TEST(EveryNode, ABroadcastReachesEverybodyAndNoNodeSendsMoreThanOnce) {
  for (const Nodes& nodes : layouts()) {
    for (const std::size_t bytes : sizes_for(nodes)) {
      const int size = shape_on(nodes, 0, 0).size;
      for (int root = 0; root < size; ++root) {
        if (bytes > SEGMENT && root % 3 != 1) continue;
        World world(
            nodes,
            [&](int rank) {
              Shape shape = shape_on(nodes, rank, bytes, Verb::BROADCAST);
              shape.root = root;
              return shape;
            },
            [&](std::size_t r, Buffers& mine) {
              mine.output.resize(bytes);
              if (static_cast<int>(r) == root) mine.output = World::contribution_of(r, bytes);
            });
        world.run();
        const Bytes expected = World::contribution_of(static_cast<std::size_t>(root), bytes);
        for (std::size_t r = 0; r < world.ranks(); ++r)
          EXPECT_TRUE(world.buffers[r].output == expected)
              << bytes << " bytes, root " << root << ", rank " << r;
        for (const auto& [node, sent] : world.sent) {
          if (bytes > SMALL) EXPECT_LE(sent, bytes) << node;
        }
      }
    }
  }
}

TEST(EveryNode, AReductionSendsEachSumOfANodeOnceToTheRoot) {
  for (const Nodes& nodes : layouts()) {
    for (const std::size_t bytes : sizes_for(nodes)) {
      const int size = shape_on(nodes, 0, 0).size;
      for (int root = 0; root < size; ++root) {
        if (bytes > SEGMENT && root % 3 != 1) continue;
        World world(
            nodes,
            [&](int rank) {
              Shape shape = shape_on(nodes, rank, bytes, Verb::REDUCE);
              shape.root = root;
              return shape;
            },
            [&](std::size_t r, Buffers& mine) {
              mine.input = World::contribution_of(r, bytes);
              if (static_cast<int>(r) == root) mine.output.resize(bytes);
            });
        world.run();
        const auto at_root = static_cast<std::size_t>(root);
        EXPECT_TRUE(world.buffers[at_root].output == world.sum_of_all(bytes))
            << bytes << " bytes, root " << root;
        for (std::size_t node = 0; node < nodes.size(); ++node)
          EXPECT_EQ(world.sent[node], node == world.node_of(at_root) ? 0 : bytes) << node;
      }
    }
  }
}

// Parts of all sizes, some empty.
std::vector<std::size_t> parts_of(std::size_t bytes, std::size_t ranks) {
  std::vector<std::size_t> parts;
  for (std::size_t r = 0; r < ranks; ++r) parts.push_back(r % 3 == 2 ? 0 : bytes / (r + 1));
  return parts;
}

Shape shape_of_parts(const Nodes& nodes, int rank, const std::vector<std::size_t>& sizes, Verb verb) {
  Shape shape = shape_on(nodes, rank, sizes[static_cast<std::size_t>(rank)], verb);
  (verb == Verb::ALL_GATHER ? shape.outputs : shape.inputs) = sizes;
  return shape;
}

TEST(EveryNode, AllGatherSendsEachPartOnceToEachOtherNode) {
  for (const Nodes& nodes : layouts()) {
    for (const std::size_t bytes : sizes_for(nodes)) {
      const auto sizes = parts_of(bytes, static_cast<std::size_t>(shape_on(nodes, 0, 0).size));
      World world(
          nodes, [&](int rank) { return shape_of_parts(nodes, rank, sizes, Verb::ALL_GATHER); },
          [&](std::size_t r, Buffers& mine) {
            mine.input = World::contribution_of(r, sizes[r]);
            for (const std::size_t size : sizes) mine.outputs.emplace_back(size);
          });
      world.run();
      std::vector<Bytes> expected;
      for (std::size_t r = 0; r < world.ranks(); ++r) expected.push_back(World::contribution_of(r, sizes[r]));
      std::map<std::size_t, std::size_t> own;  // bytes, by node
      for (std::size_t r = 0; r < world.ranks(); ++r) {
        own[world.node_of(r)] += sizes[r];
        for (std::size_t from = 0; from < world.ranks(); ++from)
          EXPECT_TRUE(world.buffers[r].outputs[from] == expected[from])
              << bytes << " bytes, from " << from << " to " << r;
      }
      for (const auto& [node, sent] : world.sent) EXPECT_EQ(sent, own[node] * (nodes.size() - 1));
    }
  }
}

TEST(EveryNode, ReduceScatterSendsEachSumOfANodeOnce) {
  for (const Nodes& nodes : layouts()) {
    for (const std::size_t bytes : sizes_for(nodes)) {
      const auto sizes = parts_of(bytes, static_cast<std::size_t>(shape_on(nodes, 0, 0).size));
      World world(
          nodes, [&](int rank) { return shape_of_parts(nodes, rank, sizes, Verb::REDUCE_SCATTER); },
          [&](std::size_t r, Buffers& mine) {
            mine.output.resize(sizes[r]);
            for (std::size_t j = 0; j < sizes.size(); ++j)
              mine.inputs.push_back(World::contribution_of(r, sizes[j], 1000 * j));
          });
      world.run();
      std::map<std::size_t, std::size_t> own;
      std::size_t all = 0;
      for (std::size_t r = 0; r < world.ranks(); ++r) {
        own[world.node_of(r)] += sizes[r];
        all += sizes[r];
        EXPECT_TRUE(world.buffers[r].output == world.sum_of_all(sizes[r], 1000 * r))
            << bytes << " bytes, rank " << r;
      }
      for (const auto& [node, sent] : world.sent) EXPECT_EQ(sent, all - own[node]);
    }
  }
}

}  // namespace
}  // namespace lockstep::algorithms

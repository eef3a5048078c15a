// Schedules as pictures, and all ranks' schedules carried out in one process: every message has its
// counterpart, and the result is the sum of closed forms.
#include "lockstep/comm/algorithms/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <set>
#include <tuple>

#include "lockstep/base/str.h"

namespace lockstep::algorithms {
namespace {

// ---- pictures
TEST(Schedule, BarrierOfFiveHearsOfTwiceAsManyInEachStep) {
  EXPECT_EQ(to_text(make_schedule({.verb = Verb::BARRIER, .rank = 1, .size = 5})),
            "step 0\n"
            "  send    input[0,0) -> rank 2\n"
            "  receive rank 0 -> input[0,0)\n"
            "step 1\n"
            "  send    input[0,0) -> rank 3\n"
            "  receive rank 4 -> input[0,0)\n"
            "step 2\n"
            "  send    input[0,0) -> rank 0\n"
            "  receive rank 2 -> input[0,0)\n");
}

TEST(Schedule, SmallBroadcastIsATree) {
  const auto text = [](int rank) {
    return to_text(make_schedule(
        {.verb = Verb::BROADCAST, .rank = rank, .size = 6, .root = 2, .element = 4, .count = 10}));
  };
  EXPECT_EQ(text(2),
            "step 0\n"
            "  send    input[0,40) -> rank 0\n"
            "  send    input[0,40) -> rank 4\n"
            "  send    input[0,40) -> rank 3\n");
  EXPECT_EQ(text(0),
            "step 0\n"
            "  receive rank 2 -> output[0,40)\n"
            "step 1\n"
            "  send    output[0,40) -> rank 1\n");
  EXPECT_EQ(text(1),
            "step 0\n"
            "  receive rank 0 -> output[0,40)\n");
}

TEST(Schedule, LargeBroadcastSendsEachByteOnceFromTheRoot) {
  const auto text = [](int rank) {
    return to_text(
        make_schedule({.verb = Verb::BROADCAST, .rank = rank, .size = 3, .element = 8, .count = 8192}));
  };
  EXPECT_EQ(text(0),
            "step 0\n"
            "  send    input[0,32768) -> rank 1\n"
            "  send    input[32768,65536) -> rank 2\n");
  EXPECT_EQ(text(1),
            "step 0\n"
            "  receive rank 0 -> output[0,32768)\n"
            "step 1\n"
            "  send    output[0,32768) -> rank 2\n"
            "  receive rank 2 -> output[32768,65536)\n");
}

TEST(Schedule, UnevenAllGatherSendsEmptyPartsToo) {
  EXPECT_EQ(
      to_text(make_schedule(
          {.verb = Verb::ALL_GATHER, .rank = 2, .size = 3, .element = 4, .count = 0, .outputs = {8, 4, 0}})),
      "step 0\n"
      "  copy    input[0,0) -> outputs.2[0,0)\n"
      "  send    input[0,0) -> rank 0\n"
      "  send    input[0,0) -> rank 1\n"
      "  receive rank 0 -> outputs.0[0,8)\n"
      "  receive rank 1 -> outputs.1[0,4)\n");
}

TEST(Schedule, PartsBeginAtLinesAndCoverEverything) {
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{1}, std::size_t{64}, std::size_t{65}, std::size_t{100000}}) {
    for (int parts = 1; parts <= 9; ++parts) {
      std::size_t next = 0;
      for (int i = 0; i < parts; ++i) {
        const Slice slice = slice_of(bytes, parts, i);
        EXPECT_TRUE(slice.offset == next && (slice.offset % 64 == 0 || slice.bytes == 0))
            << bytes << " " << i;
        next = slice.offset + slice.bytes;
      }
      EXPECT_EQ(next, bytes);
    }
  }
}

// ---- all ranks at once
using Bytes = std::vector<std::uint8_t>;

// One rank that carries out its table over a mailbox. "Combine" adds bytes: SUM of uint8. What is combined
// meanwhile is so before anything is sent or after everything was received, the former by odd ranks; these
// also send and receive as early as they may.
class Rank {
 public:
  using Mailbox = std::map<std::tuple<int, int, std::uint32_t>, std::pair<Bytes, std::size_t>>;

  Rank(Schedule schedule, int rank)
      : schedule_(std::move(schedule)), rank_(rank), scratch_(schedule_.scratch_bytes) {}

  Bytes input, output;
  std::vector<Bytes> inputs, outputs;

  bool done() const { return at_ == schedule_.steps.size(); }

  // True when something happened.
  bool advance(Mailbox& mail) {
    if (done()) return false;
    const Step& step = schedule_.steps[at_];
    if (!started_) begin(step, mail);
    bool moved = std::exchange(started_, true) == false;
    if (next_is_early()) moved = receive(schedule_.steps[at_ + 1], mail) || moved;
    moved = receive(step, mail) || moved;
    for (const Transfer& t : step.receives) {
      if (!received_.contains({t.peer, t.label})) return moved;
    }
    if (rank_ % 2 == 0) combine(step.meanwhile);
    combine(step.combines);
    for (const Transfer& t : step.receives) received_.erase({t.peer, t.label});
    ++at_;
    started_ = false;
    return true;
  }

 private:
  std::uint8_t* at(const Place& place, std::size_t bytes) {
    Bytes* area = nullptr;
    switch (place.area) {
      case Area::INPUT: area = &input; break;
      case Area::OUTPUT: area = &output; break;
      case Area::INPUTS: area = &inputs.at(static_cast<std::size_t>(place.index)); break;
      case Area::OUTPUTS: area = &outputs.at(static_cast<std::size_t>(place.index)); break;
      case Area::SCRATCH: area = &scratch_; break;
    }
    EXPECT_LE(place.offset + bytes, area->size());
    return area->data() + place.offset;
  }

  bool next_is_early() const {
    return rank_ % 2 == 1 && at_ + 1 < schedule_.steps.size() && schedule_.steps[at_ + 1].early;
  }

  void begin(const Step& step, Mailbox& mail) {
    for (const Copy& c : step.copies) std::copy_n(at(c.from, c.bytes), c.bytes, at(c.to, c.bytes));
    if (rank_ % 2 == 1) combine(step.meanwhile);
    if (rank_ % 2 == 0 || !step.early || at_ == 0) send(step, mail);
    if (next_is_early()) send(schedule_.steps[at_ + 1], mail);
  }

  // What is there; whether anything was.
  bool receive(const Step& step, Mailbox& mail) {
    bool any = false;
    for (const Transfer& t : step.receives) {
      const auto message = mail.extract({t.peer, rank_, t.label});
      if (message.empty()) continue;
      EXPECT_EQ(message.mapped().first.size(), t.bytes);
      EXPECT_EQ(message.mapped().second, t.whole);
      std::copy(message.mapped().first.begin(), message.mapped().first.end(), at(t.place, t.bytes));
      any = received_.insert({t.peer, t.label}).second;
    }
    return any;
  }

  void send(const Step& step, Mailbox& mail) {
    for (const Transfer& t : step.sends) {
      const auto* data = at(t.place, t.bytes);
      const bool fresh =
          mail.try_emplace({rank_, t.peer, t.label}, Bytes(data, data + t.bytes), t.whole).second;
      EXPECT_TRUE(fresh) << "two messages from rank " << rank_ << " to " << t.peer << " with label "
                         << t.label;
    }
  }

  void combine(const std::vector<Combine>& combines) {
    for (const Combine& c : combines) {
      Bytes sum(c.bytes);
      for (const Place& place : c.inputs) {
        const auto* data = at(place, c.bytes);
        for (std::size_t i = 0; i < c.bytes; ++i) sum[i] = static_cast<std::uint8_t>(sum[i] + data[i]);
      }
      std::copy(sum.begin(), sum.end(), at(c.output, c.bytes));
    }
  }

  Schedule schedule_;
  int rank_;
  Bytes scratch_;
  std::size_t at_ = 0;
  bool started_ = false;
  std::set<std::pair<int, std::uint32_t>> received_;  // from whom, label
};

std::uint8_t value(int rank, std::size_t i) {
  return static_cast<std::uint8_t>(31 * (rank + 1) + 7 * (i % 251));
}

Bytes contribution(int rank, std::size_t bytes, std::size_t from = 0) {
  Bytes all(bytes);
  for (std::size_t i = 0; i < bytes; ++i) all[i] = value(rank, from + i);
  return all;
}

Bytes sum_of_all(int size, std::size_t bytes, std::size_t from = 0) {
  Bytes all(bytes);
  for (int r = 0; r < size; ++r) {
    for (std::size_t i = 0; i < bytes; ++i) all[i] = static_cast<std::uint8_t>(all[i] + value(r, from + i));
  }
  return all;
}

void run(std::vector<Rank>& ranks) {
  Rank::Mailbox mail;
  bool moving = true;
  while (moving) {
    moving = false;
    for (Rank& rank : ranks) moving = rank.advance(mail) || moving;
  }
  for (std::size_t r = 0; r < ranks.size(); ++r)
    EXPECT_TRUE(ranks[r].done()) << "rank " << r << " waits forever";
  EXPECT_TRUE(mail.empty()) << mail.size() << " messages that nobody receives";
}

std::vector<std::size_t> counts() { return {0, 1, 63, 1000, SMALL, SMALL + 1, 100003}; }

class EveryRank : public ::testing::TestWithParam<int> {
 protected:
  int size() const { return GetParam(); }
  // One rank per rank; `prepare` sets its buffers.
  template <typename Prepare> std::vector<Rank> ranks(Shape shape, Prepare prepare) const {
    std::vector<Rank> all;
    shape.size = size();
    for (shape.rank = 0; shape.rank < size(); ++shape.rank) {
      Shape mine = shape;
      Bytes input, output;
      std::vector<Bytes> inputs, outputs;
      prepare(mine, input, output, inputs, outputs);
      all.emplace_back(make_schedule(mine), mine.rank);
      all.back().input = input;
      all.back().output = output;
      all.back().inputs = inputs;
      all.back().outputs = outputs;
    }
    return all;
  }
};

TEST_P(EveryRank, AllReduceSums) {
  for (std::size_t count :
       {std::size_t{0}, std::size_t{5}, SMALL + 1, std::size_t{100003}, 2 * SEGMENT + 77}) {
    if (count > SEGMENT && size() > 3) continue;
    auto all = ranks({.verb = Verb::ALL_REDUCE, .count = count},
                     [&](auto& shape, auto& input, auto& output, auto&, auto&) {
                       input = contribution(shape.rank, count);
                       output.resize(count);
                     });
    run(all);
    for (const Rank& rank : all) EXPECT_EQ(rank.output, sum_of_all(size(), count)) << count;
  }
}

TEST_P(EveryRank, ReduceSumsOnTheRoot) {
  for (const std::size_t count : counts()) {
    const int root = static_cast<int>(count) % size();
    auto all = ranks({.verb = Verb::REDUCE, .root = root, .count = count},
                     [&](auto& shape, auto& input, auto& output, auto&, auto&) {
                       input = contribution(shape.rank, count);
                       if (shape.rank == root) output.resize(count);
                     });
    run(all);
    EXPECT_EQ(all[static_cast<std::size_t>(root)].output, sum_of_all(size(), count)) << count;
  }
}

TEST_P(EveryRank, ReduceScatterGivesEachRankItsPart) {
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{777}, SEGMENT - 1}) {
    if (count > 1000 && size() > 3) continue;
    std::vector<std::size_t> sizes;  // all different
    for (int r = 0; r < size(); ++r) sizes.push_back(count * static_cast<std::size_t>(r + 1));
    auto all = ranks({.verb = Verb::REDUCE_SCATTER, .inputs = sizes},
                     [&](auto& shape, auto&, auto& output, auto& inputs, auto&) {
                       shape.count = sizes[static_cast<std::size_t>(shape.rank)];
                       output.resize(shape.count);
                       for (std::size_t j = 0; j < sizes.size(); ++j)
                         inputs.push_back(contribution(shape.rank, sizes[j], 1000 * j));
                     });
    run(all);
    for (std::size_t r = 0; r < all.size(); ++r)
      EXPECT_EQ(all[r].output, sum_of_all(size(), sizes[r], 1000 * r)) << count;
  }
}

TEST_P(EveryRank, BroadcastReachesEverybodyFromEveryRoot) {
  for (const std::size_t count : counts()) {
    for (int root = 0; root < size(); ++root) {
      auto all = ranks({.verb = Verb::BROADCAST, .root = root, .count = count},
                       [&](auto& shape, auto& input, auto& output, auto&, auto&) {
                         output.resize(count);
                         if (shape.rank == root) input = output = contribution(root, count);
                       });
      run(all);
      for (const Rank& rank : all)
        EXPECT_EQ(rank.output, contribution(root, count)) << count << " root " << root;
    }
  }
}

TEST_P(EveryRank, UnevenGathersAndScatters) {
  const auto n = static_cast<std::size_t>(size());
  std::vector<std::size_t> sizes;
  for (std::size_t r = 0; r < n; ++r) sizes.push_back(100 * (r % 3));
  const int root = size() / 2;
  const auto list = [&] {
    std::vector<Bytes> buffers;
    for (const std::size_t bytes : sizes) buffers.emplace_back(bytes);
    return buffers;
  };
  for (const Verb verb : {Verb::ALL_GATHER, Verb::GATHER}) {
    auto all = ranks({.verb = verb, .root = root, .outputs = sizes},
                     [&](auto& shape, auto& input, auto&, auto&, auto& outputs) {
                       shape.count = sizes[static_cast<std::size_t>(shape.rank)];
                       input = contribution(shape.rank, shape.count);
                       outputs = list();
                     });
    run(all);
    for (std::size_t to = 0; to < n; ++to) {
      if (verb == Verb::GATHER && to != static_cast<std::size_t>(root)) continue;
      for (std::size_t from = 0; from < n; ++from)
        EXPECT_EQ(all[to].outputs[from], contribution(static_cast<int>(from), sizes[from]));
    }
  }
  auto all = ranks({.verb = Verb::SCATTER, .root = root, .inputs = sizes},
                   [&](auto& shape, auto&, auto& output, auto& inputs, auto&) {
                     shape.count = sizes[static_cast<std::size_t>(shape.rank)];
                     output.resize(shape.count);
                     for (std::size_t r = 0; r < n && shape.rank == root; ++r)
                       inputs.push_back(contribution(static_cast<int>(r), sizes[r]));
                   });
  run(all);
  for (std::size_t r = 0; r < n; ++r) EXPECT_EQ(all[r].output, contribution(static_cast<int>(r), sizes[r]));
}

TEST_P(EveryRank, AllToAllWithADifferentSizeForEachPair) {
  const auto n = static_cast<std::size_t>(size());
  const auto bytes = [&](std::size_t from, std::size_t to) { return from == to ? 0 : 10 * from + to; };
  auto all = ranks({.verb = Verb::ALL_TO_ALL}, [&](auto& shape, auto&, auto&, auto& inputs, auto& outputs) {
    const auto me = static_cast<std::size_t>(shape.rank);
    for (std::size_t r = 0; r < n; ++r) {
      shape.inputs.push_back(bytes(me, r));
      shape.outputs.push_back(bytes(r, me));
      inputs.push_back(contribution(shape.rank, bytes(me, r), r));
      outputs.emplace_back(bytes(r, me));
    }
  });
  run(all);
  for (std::size_t to = 0; to < n; ++to) {
    for (std::size_t from = 0; from < n; ++from)
      EXPECT_EQ(all[to].outputs[from], contribution(static_cast<int>(from), bytes(from, to), to));
  }
}

// Nobody leaves before everybody has come: with one rank held back, none of the others gets through.
TEST_P(EveryRank, BarrierHoldsEverybodyUntilTheLastHasCome) {
  for (int late = 0; late < size() && size() > 1; ++late) {
    auto all = ranks({.verb = Verb::BARRIER}, [](auto&&...) {});
    Rank::Mailbox mail;
    for (int round = 0; round < 10; ++round) {
      for (int r = 0; r < size(); ++r) {
        if (r != late) all[static_cast<std::size_t>(r)].advance(mail);
      }
    }
    for (const Rank& rank : all) EXPECT_FALSE(rank.done());
  }
  auto all = ranks({.verb = Verb::BARRIER}, [](auto&&...) {});
  run(all);
}

INSTANTIATE_TEST_SUITE_P(OfOneToNine, EveryRank, ::testing::Range(1, 10));

}  // namespace
}  // namespace lockstep::algorithms

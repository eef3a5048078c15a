// The decision about names, as tables: who has announced what, and what follows.
#include "lockstep/named/negotiation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "lockstep/base/error.h"

namespace lockstep::named {
namespace negotiation_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Request sum_of(const std::string& name, std::int64_t count = 3) {
  Request request{.kind = Kind::ALLREDUCE, .name = name, .dtype = DType::FLOAT32, .op = Op::SUM};
  request.shape = {count};
  return request;
}

Request in_group(const std::string& name, int size) {
  Request request = sum_of(name);
  request.group = "group";
  request.group_size = size;
  return request;
}

class Table : public ::testing::Test {
 protected:
  explicit Table(int ranks = 3, std::size_t cache = 4) : table(ranks, cache) {}

  void announce(std::vector<int> ranks, const Request& request) {
    for (const int rank : ranks) table.announce(rank, std::make_shared<Request>(request), {});
  }
  void join(int rank) { announce({rank}, {.kind = Kind::JOIN, .name = "join"}); }
  std::string ready() { return to_text(table.take_ready()); }

  Negotiation table;
};
using NegotiationTable = Table;

TEST_F(NegotiationTable, ANameRunsWhenEveryRankHasIt) {
  announce({0, 1}, sum_of("a"));
  announce({2}, sum_of("b"));
  EXPECT_EQ(ready(), "");
  announce({2}, sum_of("a"));
  announce({0}, sum_of("b"));
  EXPECT_EQ(ready(), "RUN allreduce \"a\"\n");
  EXPECT_EQ(ready(), "");
  announce({1}, sum_of("b"));
  announce({0, 1, 2}, sum_of("a"));
  EXPECT_EQ(ready(), "RUN allreduce \"b\"\nRUN allreduce \"a\"\n");
}

// Two tables that hear the ranks' announcements in one order give the same answers; and whatever the orders
// of the ranks, each name runs exactly once.
TEST_F(NegotiationTable, EveryNameRunsOnceWhateverTheOrder) {
  std::mt19937 random(7);
  std::vector<std::string> names(50);
  for (std::size_t i = 0; i < names.size(); ++i) names[i] = std::to_string(i);
  Negotiation twin(3, 4);
  std::string all;
  std::vector<std::vector<std::string>> orders(3, names);
  for (auto& order : orders) std::shuffle(order.begin(), order.end(), random);
  for (std::size_t i = 0; i < names.size(); ++i) {
    for (int rank = 0; rank < 3; ++rank) {
      const auto request = std::make_shared<Request>(sum_of(orders[static_cast<std::size_t>(rank)][i]));
      table.announce(rank, request, {});
      twin.announce(rank, request, {});
    }
    const std::string mine = ready();
    EXPECT_EQ(mine, to_text(twin.take_ready()));
    all += mine;
  }
  for (const std::string& name : names) EXPECT_THAT(all, HasSubstr("RUN allreduce \"" + name + "\"\n"));
  EXPECT_EQ(std::count(all.begin(), all.end(), '\n'), 50);
  EXPECT_THAT(table.incomplete(), IsEmpty());
}

TEST_F(NegotiationTable, AMismatchNamesTensorValuesAndRanks) {
  announce({0, 2}, sum_of("grad.w", 3));
  announce({1}, sum_of("grad.w", 4));
  announce({0, 1, 2}, sum_of("b"));
  const auto found = table.take_ready();
  EXPECT_EQ(to_text(found), "MISMATCH allreduce \"grad.w\"\nRUN allreduce \"b\"\n");
  EXPECT_THAT(found[0].text,
              HasSubstr("allreduce \"grad.w\": the ranks disagree about shape: ranks 0, 2 gave allreduce of "
                        "float32[3], sum; rank 1 gave allreduce of float32[4], sum."));
}

TEST_F(NegotiationTable, AGroupRunsTogetherOrNotAtAll) {
  announce({0, 1, 2}, in_group("a", 2));
  EXPECT_EQ(ready(), "");
  announce({0, 1}, in_group("b", 2));
  announce({0, 1, 2}, sum_of("c"));
  EXPECT_EQ(ready(), "RUN allreduce \"c\"\n");
  announce({2}, in_group("b", 2));
  EXPECT_EQ(ready(), "RUN allreduce \"a\"\nRUN allreduce \"b\"\n");
  announce({0, 1, 2}, in_group("a", 2));
  announce({0, 1}, in_group("b", 2));
  Request other = in_group("b", 2);
  other.shape = {9};
  announce({2}, other);
  EXPECT_EQ(ready(), "MISMATCH allreduce \"b\"\nMISMATCH allreduce \"a\"\n");
  // A rank that has one name of the group outside of it.
  announce({0}, sum_of("a"));
  announce({1, 2}, in_group("a", 2));
  announce({1, 2}, in_group("b", 2));
  EXPECT_EQ(ready(), "MISMATCH allreduce \"a\"\nMISMATCH allreduce \"b\"\n");
  EXPECT_THAT(table.incomplete(), IsEmpty());
}

TEST_F(NegotiationTable, ProcessSetsAreApart) {
  table.add_process_set(1, {0, 2});
  Request request = sum_of("a");
  request.process_set = 1;
  announce({2}, request);
  announce({0}, sum_of("a"));
  EXPECT_EQ(ready(), "");
  announce({0}, request);
  EXPECT_EQ(ready(), "RUN allreduce \"a\" of process set 1\n");
  announce({1, 2}, sum_of("a"));
  EXPECT_EQ(ready(), "RUN allreduce \"a\"\n");
}

TEST_F(NegotiationTable, AJoinedRankCountsAsThere) {
  announce({0, 2}, sum_of("a"));
  announce({0}, sum_of("b"));
  join(1);
  EXPECT_EQ(ready(), "RUN allreduce \"a\"\n");
  join(2);
  const auto found = table.take_ready();
  EXPECT_EQ(to_text(found), "RUN allreduce \"b\"\n");
  EXPECT_EQ(found[0].agreement->requests[1], nullptr);
  EXPECT_NE(found[0].agreement->requests[0], nullptr);
  Request gather = sum_of("c");
  gather.kind = Kind::ALLGATHER;
  announce({0}, gather);
  const auto refused = table.take_ready();
  EXPECT_EQ(to_text(refused), "MISMATCH allgather \"c\"\n");
  EXPECT_THAT(refused[0].text, HasSubstr("ranks 1, 2 have called join()"));
  join(0);
  const auto end = table.take_ready();
  EXPECT_EQ(to_text(end), "ALL_JOINED join \"join\"\n");
  EXPECT_EQ(end[0].last_joined, 0);
  announce({0, 1}, sum_of("d"));
  EXPECT_EQ(ready(), "");  // nobody is joined any more
}

TEST_F(NegotiationTable, TheCacheStandsForTheSameRequestAlone) {
  EXPECT_EQ(table.slot_of(0, sum_of("a")), std::nullopt);
  announce({0, 1, 2}, sum_of("a"));
  ready();
  const auto slot = table.slot_of(1, sum_of("a"));
  ASSERT_TRUE(slot.has_value());
  EXPECT_EQ(table.slot_of(1, sum_of("a", 4)), std::nullopt);
  table.announce_cached(0, *slot, {});
  table.announce_cached(2, *slot, {});
  announce({1}, sum_of("a", 4));
  EXPECT_EQ(ready(), "MISMATCH allreduce \"a\"\n");
  for (const int rank : {0, 1, 2}) table.announce_cached(rank, *slot, {});
  EXPECT_EQ(ready(), "RUN allreduce \"a\"\n");
}

// The short way of a slot that every rank announces at one time: also for groups, and beside names in the
// table.
TEST_F(NegotiationTable, ASlotOfAllRanksIsAsOneOfEach) {
  Negotiation twin(3, 4);
  const std::vector<Request> requests = {in_group("a", 2), in_group("b", 2), sum_of("c")};
  for (const Request& request : requests) {
    announce({0, 1, 2}, request);
    for (const int rank : {0, 1, 2}) twin.announce(rank, std::make_shared<Request>(request), {});
  }
  ready();
  twin.take_ready();
  for (int round = 0; round < 3; ++round) {
    for (const char* const name : {"b", "c", "a"}) {
      const Request& request = requests[static_cast<std::size_t>(name[0] - 'a')];
      const std::size_t slot = table.slot_of(0, request).value();
      ASSERT_EQ(slot, twin.slot_of(0, request));
      table.announce_cached_by_all(slot, {});
      for (const int rank : {0, 1, 2}) twin.announce_cached(rank, slot, {});
    }
    const std::string found = ready();
    EXPECT_EQ(found, to_text(twin.take_ready()));
    EXPECT_EQ(found, "RUN allreduce \"c\"\nRUN allreduce \"b\"\nRUN allreduce \"a\"\n");
    announce({round}, sum_of("waits"));
  }
  EXPECT_EQ(ready(), "RUN allreduce \"waits\"\n");
}

TEST_F(NegotiationTable, TheCacheForgetsWhatWasUsedLongestAgo) {
  for (const char* name : {"a", "b", "c", "d", "a", "e"}) {
    announce({0, 1, 2}, sum_of(name));
    ready();
  }
  EXPECT_EQ(table.slots(), 4U);
  EXPECT_TRUE(table.slot_of(0, sum_of("a")).has_value());
  EXPECT_FALSE(table.slot_of(0, sum_of("b")).has_value());
  EXPECT_TRUE(table.slot_of(0, sum_of("e")).has_value());
}

TEST_F(NegotiationTable, SaysWhatIsIncomplete) {
  announce({0, 2}, sum_of("a"));
  announce({1}, sum_of("b"));
  const auto found = table.incomplete();
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].request->name, "a");
  EXPECT_THAT(found[0].present, ElementsAre(0, 2));
  EXPECT_THAT(found[0].missing, ElementsAre(1));
  EXPECT_THAT(found[1].missing, ElementsAre(0, 2));
}

}  // namespace
}  // namespace negotiation_test
}  // namespace lockstep::named

#include "lockstep/job/place_on_node.h"

#include <gmock/gmock.h>

#include "lockstep/base/str.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;

// "local_rank/local_size node_rank/node_count" of each rank.
std::vector<std::string> places(const std::vector<RankOnMachine>& all) {
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < all.size(); ++r) {
    const PlaceOnNode place = place_on_node(all, static_cast<int>(r));
    texts.push_back(
        str(place.local_rank, '/', place.local_size, ' ', place.node_rank, '/', place.node_count));
  }
  return texts;
}

TEST(PlaceOnNode, OfOneRank) {
  EXPECT_THAT(places({{"a"}}), ElementsAre("0/1 0/1"));
  EXPECT_THAT(places({{"a", 0}}), ElementsAre("0/1 0/1"));
}

TEST(PlaceOnNode, RanksInBlocks) {
  EXPECT_THAT(places({{"b", 0}, {"b", 1}, {"a", 0}, {"a", 1}, {"a", 2}}),
              ElementsAre("0/2 0/2", "1/2 0/2", "0/3 1/2", "1/3 1/2", "2/3 1/2"));
}

TEST(PlaceOnNode, RanksInTurn) {
  EXPECT_THAT(places({{"a", 0}, {"b", 0}, {"a", 1}, {"b", 1}}),
              ElementsAre("0/2 0/2", "0/2 1/2", "1/2 0/2", "1/2 1/2"));
}

TEST(PlaceOnNode, TwoLaunchersOfOneMachineAreTwoNodes) {
  EXPECT_THAT(places({{"", 0}, {"", 1}, {"", 0}, {"", 1}}),
              ElementsAre("0/2 0/2", "1/2 0/2", "0/2 1/2", "1/2 1/2"));
}

TEST(PlaceOnNode, WithoutALauncherRanksAreCounted) {
  EXPECT_THAT(places({{"a"}, {"b"}, {"a"}}), ElementsAre("0/2 0/2", "0/1 1/2", "1/2 0/2"));
}

}  // namespace
}  // namespace lockstep

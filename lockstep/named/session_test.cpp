// Horovod's places, against its own examples of host assignments.
#include "lockstep/named/session.h"

#include <gtest/gtest.h>

namespace lockstep::named {
namespace session_test {
namespace {

TEST(NamedPlaces, OfEvenMachines) {  // w0:2,w1:2
  const std::vector<std::pair<int, int>> ranks = {{0, 0}, {0, 1}, {1, 0}, {1, 1}};
  for (std::size_t r = 0; r < 4; ++r) {
    const Places places = places_of(ranks, r);
    EXPECT_EQ(places.cross_rank, static_cast<int>(r / 2));
    EXPECT_EQ(places.cross_size, 2);
    EXPECT_TRUE(places.is_homogeneous);
  }
}

TEST(NamedPlaces, OfUnevenMachines) {  // w0:1,w1:2
  const std::vector<std::pair<int, int>> ranks = {{0, 0}, {1, 0}, {1, 1}};
  EXPECT_EQ(places_of(ranks, 0).cross_rank, 0);
  EXPECT_EQ(places_of(ranks, 0).cross_size, 2);
  EXPECT_EQ(places_of(ranks, 1).cross_rank, 1);
  EXPECT_EQ(places_of(ranks, 1).cross_size, 2);
  EXPECT_EQ(places_of(ranks, 2).cross_rank, 0);
  EXPECT_EQ(places_of(ranks, 2).cross_size, 1);
  EXPECT_FALSE(places_of(ranks, 0).is_homogeneous);
}

}  // namespace
}  // namespace session_test
}  // namespace lockstep::named

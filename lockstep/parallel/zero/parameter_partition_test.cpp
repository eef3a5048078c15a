#include "lockstep/parallel/zero/parameter_partition.h"

#include <gmock/gmock.h>

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ParameterPartition, GivesTheLargestFirstToTheRankWithTheLeast) {
  EXPECT_EQ(to_text(partition_parameters({{10, 4, 3}, {7}}, 2)),
            "rank 0, 10 elements: group 0: 0; group 1: none\n"
            "rank 1, 14 elements: group 0: 1 2; group 1: 3\n");
}

TEST(ParameterPartition, OfEqualSizesGoesRoundInOrder) {
  const auto partition = partition_parameters({{5, 5, 5, 5, 5}}, 2);
  EXPECT_THAT(partition.of_rank[0][0], ElementsAre(0, 2, 4));
  EXPECT_THAT(partition.of_rank[1][0], ElementsAre(1, 3));
  EXPECT_THAT(partition.elements, ElementsAre(15, 10));
}

TEST(ParameterPartition, LeavesRanksWithoutAnyWhereThereAreTooFew) {
  const auto partition = partition_parameters({{1, 9}}, 4);
  EXPECT_THAT(partition.of_rank[0][0], ElementsAre(1));
  EXPECT_THAT(partition.of_rank[1][0], ElementsAre(0));
  EXPECT_THAT(partition.of_rank[2][0], IsEmpty());
  EXPECT_THAT(partition.of_rank[3][0], IsEmpty());
}

TEST(ParameterPartition, OfEarlierGroupsStaysWhenOneIsAdded) {
  const auto before = partition_parameters({{8, 1, 6}, {}, {2, 2}}, 3);
  const auto after = partition_parameters({{8, 1, 6}, {}, {2, 2}, {40, 1}}, 3);
  for (std::size_t rank = 0; rank < 3; ++rank)
    for (std::size_t group = 0; group < 3; ++group)
      EXPECT_EQ(before.of_rank[rank][group], after.of_rank[rank][group]);
  EXPECT_EQ(after.elements[0] + after.elements[1] + after.elements[2], 60);
}

}  // namespace
}  // namespace lockstep

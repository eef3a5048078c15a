#include "lockstep/job/virtual_ranks.h"

#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "lockstep/job/job.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

RANKS_TEST(VirtualRanks, WithoutThemAreTheProcesses, Ranks(1, 2, 3)) {
  EXPECT_FALSE(has_virtual_ranks());
  EXPECT_EQ(virtual_world_size(), size());
  EXPECT_THAT(local_virtual_ranks(), ElementsAre(rank()));
  EXPECT_EQ(get_virtual_rank(), rank());
}

RANKS_TEST(VirtualRanks, AreSharedOutInOrder, Ranks(1, 2, 3, 4), WithoutGroup()) {
  init_process_group("auto", {.virtual_ranks = 4});
  EXPECT_TRUE(has_virtual_ranks());
  EXPECT_EQ(get_world_size(), size());
  EXPECT_EQ(virtual_world_size(), 4);
  const int each = 4 / size();
  const int more = 4 % size();
  const int first = rank() * each + std::min(rank(), more);
  std::vector<int> expected;
  for (int v = first; v < first + each + (rank() < more ? 1 : 0); ++v) expected.push_back(v);
  EXPECT_EQ(local_virtual_ranks(), expected);
  EXPECT_THAT([] { get_virtual_rank(); },
              ThrowsMessage<InvalidArgument>(HasSubstr("outside of a virtual rank's turn")));
  destroy_process_group();
  EXPECT_FALSE(has_virtual_ranks());
}

RANKS_TEST(VirtualRanks, ComeFromTheEnvironment, Ranks(1, 2), Variable("LOCKSTEP_VIRTUAL_RANKS", "6"),
           WithoutGroup()) {
  init_process_group();
  EXPECT_EQ(virtual_world_size(), 6);
  destroy_process_group();
  init_process_group("auto", {.virtual_ranks = 5});  // the program's number has priority
  EXPECT_EQ(virtual_world_size(), 5);
}

RANKS_TEST(VirtualRanks, FewerThanProcessesAreRefused, Ranks(2, 3), WithoutGroup()) {
  EXPECT_THAT([&] { init_process_group("auto", {.virtual_ranks = size() - 1}); },
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("virtual ranks (InitOptions::virtual_ranks)"),
                                                   HasSubstr("fewer than the"))));
  EXPECT_THAT([] { init_process_group("auto", {.virtual_ranks = 0}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("virtual_ranks is 0, expected 1 to")));
}

RANKS_TEST(VirtualRanks, ThatProcessesDisagreeAboutAreAMismatch, Ranks(2, 3), WithoutGroup()) {
  EXPECT_THAT([&] { init_process_group("auto", {.virtual_ranks = rank() == 1 ? 5 : 4}); },
              ThrowsMessage<Mismatch>(HasSubstr("rank 0 asks for 4 virtual ranks, rank 1 for 5")));
}

}  // namespace
}  // namespace lockstep

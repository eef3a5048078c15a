#include "lockstep/job/introduction.h"

#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/meeting/job_identity.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const Introduction MINE = {.backend = "auto",
                           .virtual_ranks = 4,
                           .local_rank = 1,
                           .job = pack(JobFingerprint{.size = 2, .source = "MPICH"}),
                           .boot_id = "b",
                           .address = "10.0.0.1",
                           .offer = "two\nlines"};

TEST(Introduction, ArrivesAsItWasSent) {
  const Introduction got = unpack_introduction(pack(MINE));
  EXPECT_EQ(got.layout, layout_version());
  EXPECT_EQ(got.backend, MINE.backend);
  EXPECT_EQ(got.virtual_ranks, MINE.virtual_ranks);
  EXPECT_EQ(got.local_rank, MINE.local_rank);
  EXPECT_EQ(got.job, MINE.job);
  EXPECT_EQ(got.boot_id, MINE.boot_id);
  EXPECT_EQ(got.address, MINE.address);
  EXPECT_EQ(got.offer, MINE.offer);
  EXPECT_THROW(unpack_introduction("auto\n1\n2\n3"), StoreError);  // the form of a build without layouts
}

TEST(Introduction, ThoseThatAreAlikePass) {
  check_introductions({MINE});
  check_introductions({MINE, MINE, MINE});
}

TEST(Introduction, AnotherBuildIsRefusedByName) {
  Introduction other = MINE;
  other.layout = "0.0.1/abc";
  EXPECT_THAT(
      [&] {
        check_introductions({MINE, MINE, other});
      },
      ThrowsMessage<Mismatch>(AllOf(HasSubstr("rank 0 runs another build of Lockstep than rank 2"),
                                    HasSubstr(layout_version()), HasSubstr("0.0.1/abc"))));
}

TEST(Introduction, AnotherJobOrBackendIsRefused) {
  Introduction other = MINE;
  other.job = pack(JobFingerprint{.size = 3, .source = "MPICH"});
  EXPECT_THAT(
      [&] {
        check_introductions({MINE, other});
      },
      ThrowsMessage<Mismatch>(HasSubstr("ranks of two jobs have met")));
  other = MINE;
  other.backend = "tcp";
  EXPECT_THAT(
      [&] {
        check_introductions({MINE, other});
      },
      ThrowsMessage<Mismatch>(HasSubstr("rank 0 asks for backend \"auto\", rank 1 for \"tcp\"")));
  other = MINE;
  other.virtual_ranks = 0;
  EXPECT_THAT(
      [&] {
        check_introductions({MINE, other});
      },
      ThrowsMessage<Mismatch>(HasSubstr("rank 0 asks for 4 virtual ranks, rank 1 for 0")));
}

}  // namespace
}  // namespace lockstep

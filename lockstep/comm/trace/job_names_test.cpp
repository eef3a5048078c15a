#include "lockstep/comm/trace/job_names.h"

#include <gmock/gmock.h>

namespace lockstep::trace {
namespace {

using ::testing::ElementsAre;

TEST(JobNames, TwoJobsOfOneNameAreToldApartByTheirNetworks) {
  EXPECT_THAT(
      distinct_job_names({{"a", 0, 11, "1", true},
                          {"a", 1, 12, "1", true},
                          {"a", 0, 21, "2", true},
                          {"b", 0, 31, "1", true}}),
      ElementsAre("a in network namespace 1", "a in network namespace 1", "a in network namespace 2", "b"));
}

TEST(JobNames, OneJobMayLieInSeveralNetworks) {
  EXPECT_THAT(distinct_job_names({{"a", 0, 11, "1", true}, {"a", 1, 12, "2", true}}), ElementsAre("a", "a"));
}

// A process that joined again has two memories, and a rank that was started anew leaves the records of the
// dead one.
TEST(JobNames, AnotherWorldAndADeadRankAreNoOtherJob) {
  EXPECT_THAT(
      distinct_job_names({{"a", 0, 11, "1", true}, {"a", 0, 11, "1", true}, {"a", 0, 10, "1", false}}),
      ElementsAre("a", "a", "a"));
}

TEST(JobNames, WithoutANameOrANetworkNothingIsAdded) {
  EXPECT_THAT(
      distinct_job_names(
          {{"", 0, 11, "1", true}, {"", 0, 12, "2", true}, {"a", 0, 13, "", true}, {"a", 0, 14, "3", true}}),
      ElementsAre("", "", "a", "a in network namespace 3"));
}

}  // namespace
}  // namespace lockstep::trace

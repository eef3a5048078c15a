#include "lockstep/launch/restart_plan.h"

#include <gmock/gmock.h>

#include <array>
#include <set>

namespace lockstep {
namespace {

constexpr std::array EVERY_END = {AttemptEnd::SUCCEEDED,    AttemptEnd::REQUEUE,   AttemptEnd::RANK_FAILED,
                                  AttemptEnd::STOPPED,      AttemptEnd::TIMED_OUT, AttemptEnd::NOT_STARTED,
                                  AttemptEnd::LAUNCHER_LOST};

TEST(RestartPlan, AFailedRankIsRestartedUntilNoneIsLeft) {
  for (const int max : {1, 2, 3, 1000}) {
    for (const int restarts : {0, 1, max - 1}) {
      if (restarts >= max) continue;
      EXPECT_EQ(restart_plan(AttemptEnd::RANK_FAILED, restarts, max),
                (RestartPlan{RestartStep::RESTART, RestartReason::RANK_FAILED}));
    }
    EXPECT_EQ(restart_plan(AttemptEnd::RANK_FAILED, max, max),
              (RestartPlan{RestartStep::GIVE_UP, RestartReason::RESTARTS_USED_UP}));
  }
  EXPECT_EQ(restart_plan(AttemptEnd::RANK_FAILED, 0, 0),
            (RestartPlan{RestartStep::GIVE_UP, RestartReason::NO_RESTARTS_ASKED}));
}

TEST(RestartPlan, NothingElseIsRestarted) {
  for (const AttemptEnd end : EVERY_END) {
    if (end == AttemptEnd::RANK_FAILED) continue;
    const RestartPlan plan = restart_plan(end, 0, 3);
    EXPECT_NE(plan.step, RestartStep::RESTART);
    EXPECT_EQ(plan.step == RestartStep::DONE, end == AttemptEnd::SUCCEEDED || end == AttemptEnd::REQUEUE);
    EXPECT_EQ(plan, restart_plan(end, 3, 3)) << "it does not depend on the restarts left";
  }
}

TEST(RestartPlan, EveryEndHasAReasonOfItsOwn) {
  std::set<std::string> words;
  for (const AttemptEnd end : EVERY_END) words.insert(describe(restart_plan(end, 0, 1).reason));
  for (const RestartReason reason : {RestartReason::ANOTHER_GAVE_UP, RestartReason::STORE_LOST})
    words.insert(describe(reason));
  EXPECT_EQ(words.size(), EVERY_END.size() + 2);
  EXPECT_FALSE(words.contains(""));
}

}  // namespace
}  // namespace lockstep

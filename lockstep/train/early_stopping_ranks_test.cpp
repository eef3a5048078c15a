// All ranks stop after the same step, whatever their metrics and whenever they were restarted.
#include "lockstep/train/early_stopping.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/load_checkpoint.h"
#include "lockstep/checkpoint/save_checkpoint.h"
#include "lockstep/job/groups.h"
#include "lockstep/job/job.h"
#include "testing/ranks.h"
#include "testing/shared_folder.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

RANKS_TEST(EarlyStopping, FollowsTheMeanOfMetricsThatDiffer, Ranks(1, 2, 3, 4), EveryBackend()) {
  EarlyStopping stopping({.patience = 2, .process_group = world()});
  // On average 5, 4, 3, 3, 4; on every rank alone it falls or rises all the time.
  const double means[] = {5, 4, 3, 3, 4};
  const double sign = rank() % 2 == 0 ? 1 : -1;
  const double odd_one = size() % 2 == 1 && rank() == size() - 1 ? 0 : sign;  // the parts add up to 0
  int steps = 0;
  while (!stopping.should_stop()) {
    ASSERT_LT(steps, 5);
    stopping.step(means[steps] + 8.0 * steps * odd_one);
    ++steps;
  }
  EXPECT_EQ(steps, 5);
  EXPECT_EQ(stopping.best(), 3);
  EXPECT_EQ(stopping.best_step(), 2);
}

RANKS_TEST(EarlyStopping, TakesAMetricThatAllShareToTheBit, Ranks(1, 2, 3, 4)) {
  const double metric = 0.1 + 1e-17 * 3 + std::nextafter(1.0, 2.0);
  EarlyStopping stopping;
  stopping.step(metric);
  EXPECT_EQ(stopping.best(), metric);
  EXPECT_FALSE(stopping.step(std::nextafter(metric, 0.0)));
  EXPECT_EQ(stopping.best_step(), 1);
}

RANKS_TEST(EarlyStopping, CountsNaNOfOneRankForAll, Ranks(1, 2, 3, 4)) {
  EarlyStopping stopping({.patience = 2});
  stopping.step(1);
  EXPECT_FALSE(stopping.step(rank() == size() - 1 ? NAN : 0.0));
  EXPECT_EQ(stopping.num_bad_steps(), 1);
  const double opposite = rank() == 0 ? std::numeric_limits<double>::infinity() : -INFINITY;
  EXPECT_TRUE(stopping.step(size() == 1 ? NAN : opposite));
  EXPECT_EQ(stopping.best(), 1);
}

RANKS_TEST(EarlyStopping, GoesOnWithTheStateOfACheckpoint, Ranks(1, 2, 3, 4)) {
  const testing::SharedFolder folder(world());
  const EarlyStoppingOptions options = {.patience = 3};
  EarlyStopping before(options);
  for (const double metric : {4.0, 2.0, 3.0, 2.5}) EXPECT_FALSE(before.step(metric));
  CheckpointState saved;
  saved.add("stopping", before);
  save_checkpoint(folder.path(), saved, {.step = 4});
  EarlyStopping after(options);
  CheckpointState loaded;
  loaded.add("stopping", after);
  load_checkpoint(folder.path(), loaded);
  EXPECT_EQ(after.best(), 2);
  EXPECT_EQ(after.best_step(), 1);
  EXPECT_EQ(after.num_bad_steps(), 2);
  EXPECT_TRUE(after.step(2));  // the third in a row
}

RANKS_TEST(EarlyStopping, RefusesStatesThatDiffer, Ranks(2, 3, 4)) {
  EarlyStopping other({.patience = 3});
  if (rank() == 1) {
    EarlyStopping alone(
        {.patience = 3, .process_group = new_group({1}, {.use_local_synchronization = true})});
    alone.step(0.25);
    other.load_state_dict(alone.state_dict());
  }
  EXPECT_THAT([&] { other.step(1); },
              ThrowsMessage<Mismatch>(
                  AllOf(HasSubstr("EarlyStopping::step on group \"world\", rank " + std::to_string(rank())),
                        HasSubstr("the best metric is 0.25 on rank 1 and nan on rank 0"),
                        HasSubstr("load the same state on all of them"))));
  EarlyStopping patient({.patience = rank() == 1 ? 4 : 3});
  EXPECT_THAT([&] { patient.step(1); },
              ThrowsMessage<Mismatch>(HasSubstr("patience is 4 on rank 1 and 3 on rank 0")));
  EXPECT_FALSE(EarlyStopping().step(1));  // the group is usable
}

RANKS_TEST(EarlyStopping, RefusesAProcessOutsideOfTheGroup, Ranks(2, 3)) {
  const ProcessGroup group = new_group({0});
  EarlyStopping stopping({.process_group = group});
  if (rank() == 0) {
    EXPECT_FALSE(stopping.step(1));
    return;
  }
  EXPECT_THAT(
      [&] { stopping.step(1); },
      ThrowsMessage<InvalidArgument>(HasSubstr("EarlyStopping::step: this process is not in the group")));
}

}  // namespace
}  // namespace lockstep

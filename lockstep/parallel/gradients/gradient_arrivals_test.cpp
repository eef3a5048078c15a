#include "lockstep/parallel/gradients/gradient_arrivals.h"

#include <gmock/gmock.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using Graph = GradientArrivals::Graph;
using Lateness = GradientArrivals::Lateness;

// Parameters 0 and 1 in bucket 0, parameter 2 in bucket 1, parameter 3 in none.
GradientArrivals four_parameters() {
  GradientArrivals arrivals(4);
  arrivals.lay_out({0, 0, 1}, 2);
  return arrivals;
}

TEST(GradientArrivals, ABucketIsCompleteWithItsLastGradient) {
  GradientArrivals arrivals = four_parameters();
  arrivals.begin_pass();
  EXPECT_FALSE(arrivals.is_complete(0));
  arrivals.add(2);
  EXPECT_TRUE(arrivals.is_complete(1));
  arrivals.add(0);
  EXPECT_FALSE(arrivals.is_complete(0));
  EXPECT_FALSE(arrivals.are_all_complete());
  arrivals.leave_out(1);
  arrivals.leave_out(1);  // nothing a second time
  EXPECT_TRUE(arrivals.are_all_complete());
  EXPECT_FALSE(arrivals.all_arrived());
  EXPECT_THAT(arrivals.order(), ::testing::ElementsAre(2, 0));
}

TEST(GradientArrivals, AParameterOutsideOfBucketsHoldsBackNone) {
  GradientArrivals arrivals = four_parameters();
  arrivals.begin_pass();
  for (const std::size_t i : {0, 1, 2}) arrivals.add(i);
  EXPECT_TRUE(arrivals.are_all_complete());
  EXPECT_TRUE(arrivals.is_short(3));
  EXPECT_FALSE(arrivals.all_arrived());
  arrivals.add(3);
  EXPECT_TRUE(arrivals.all_arrived());
  EXPECT_THAT(arrivals.order(), ::testing::ElementsAre(0, 1, 2));
}

TEST(GradientArrivals, EachPassBeginsAnewAndUseIsRememberedUntilTheStepEnds) {
  GradientArrivals arrivals = four_parameters();
  arrivals.begin_pass();
  arrivals.add(1);
  arrivals.begin_pass();
  EXPECT_FALSE(arrivals.is_counted(1));
  EXPECT_TRUE(arrivals.was_used(1));
  EXPECT_FALSE(arrivals.was_used(0));
  EXPECT_TRUE(arrivals.order().empty());
  arrivals.end_step();
  EXPECT_FALSE(arrivals.was_used(1));
}

TEST(GradientArrivals, SaysWhyAGradientIsLate) {
  GradientArrivals arrivals = four_parameters();
  arrivals.begin_pass();
  EXPECT_EQ(arrivals.lateness(0, false), Lateness::NONE);
  arrivals.add(0);
  EXPECT_EQ(arrivals.lateness(0, false), Lateness::SECOND_GRADIENT);
  arrivals.leave_out(1);
  EXPECT_EQ(arrivals.lateness(1, false), Lateness::NONE);  // its bucket still takes it
  EXPECT_EQ(arrivals.lateness(1, true), Lateness::AFTER_IT_WAS_LEFT_OUT);
}

TEST(GradientArrivals, LearnsHowManyGradientsAGraphHas) {
  GradientArrivals arrivals = four_parameters();
  arrivals.watch_graph();
  EXPECT_EQ(arrivals.graph(), Graph::WATCHED);
  arrivals.begin_pass();
  for (const std::size_t i : {0, 0, 2, 3}) arrivals.add(i);  // parameter 0 twice, parameter 1 never
  EXPECT_FALSE(arrivals.is_complete(1));
  EXPECT_FALSE(arrivals.all_arrived());
  arrivals.learn_graph();
  EXPECT_EQ(arrivals.graph(), Graph::LEARNT);

  arrivals.begin_pass();
  EXPECT_TRUE(arrivals.is_outside_of_graph(1));
  arrivals.leave_out(1);
  arrivals.add(0);
  EXPECT_TRUE(arrivals.is_short(0));
  EXPECT_FALSE(arrivals.is_complete(0));
  arrivals.add(0);
  EXPECT_TRUE(arrivals.is_complete(0));
  EXPECT_EQ(arrivals.lateness(0, false), Lateness::NOT_IN_GRAPH);
  EXPECT_EQ(arrivals.expected(0), 2u);
  for (const std::size_t i : {2, 3}) arrivals.add(i);
  EXPECT_TRUE(arrivals.all_arrived());
}

TEST(GradientArrivals, AGraphIsWatchedBeforeItIsLearnt) {
  GradientArrivals arrivals = four_parameters();
  EXPECT_THROW(arrivals.learn_graph(), InternalError);
}

}  // namespace
}  // namespace lockstep

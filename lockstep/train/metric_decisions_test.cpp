// What EarlyStopping and BestCheckpoints decide, without ranks.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <random>

#include "lockstep/base/error.h"
#include "lockstep/train/best_checkpoints.h"
#include "lockstep/train/early_stopping.h"

namespace lockstep {
namespace metric_decisions_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

constexpr double INFINITE = std::numeric_limits<double>::infinity();

// After how many metrics the training stops; 0: it does not.
int stops_after(const std::vector<double>& metrics, const EarlyStoppingOptions& options) {
  EarlyStopping stopping(options);
  for (std::size_t i = 0; i < metrics.size(); ++i) {
    if (stopping.step(metrics[i])) return static_cast<int>(i) + 1;
  }
  return 0;
}

TEST(EarlyStopping, CountsStepsWithoutImprovement) {
  EXPECT_EQ(stops_after({3, 2, 2, 2, 2}, {.patience = 3}), 5);
  EXPECT_EQ(stops_after({3, 2, 2, 1, 1, 1}, {.patience = 3}), 0);
  EXPECT_EQ(stops_after({1, 2}, {.patience = 1}), 2);
  EXPECT_EQ(stops_after({1, 2, 3, 2, 3}, {.patience = 2, .mode = MetricMode::MAX}), 5);
}

TEST(EarlyStopping, ImprovesByMoreThanMinDelta) {
  EXPECT_EQ(stops_after({1, 0.75, 0.5, 0.25}, {.patience = 2, .min_delta = 0.25}), 0);  // 1, 0.5
  EXPECT_EQ(stops_after({1, 0.75, 0.75}, {.patience = 2, .min_delta = 0.25}), 3);
  EXPECT_EQ(stops_after({1, 1.25, 1.25}, {.patience = 2, .min_delta = 0.25, .mode = MetricMode::MAX}), 3);
}

TEST(EarlyStopping, NaNNeverImproves) {
  EXPECT_EQ(stops_after({NAN, NAN}, {.patience = 2}), 2);
  EarlyStopping stopping({.patience = 2});
  stopping.step(NAN);
  EXPECT_TRUE(std::isnan(stopping.best()));
  EXPECT_EQ(stopping.best_step(), std::nullopt);
  EXPECT_FALSE(stopping.step(5));
  EXPECT_FALSE(stopping.step(NAN));
  EXPECT_EQ(stopping.best(), 5);
  EXPECT_EQ(stopping.best_step(), 1);
  EXPECT_EQ(stopping.num_bad_steps(), 1);
  EXPECT_TRUE(stopping.step(INFINITE));
  EXPECT_FALSE(stopping.step(4));  // lifts the stop
  EXPECT_FALSE(stopping.should_stop());
}

// The number of bad steps is the distance to the last record.
TEST(EarlyStopping, RemembersTheLastRecord) {
  std::mt19937 random(3);
  for (const MetricMode mode : {MetricMode::MIN, MetricMode::MAX}) {
    EarlyStoppingState state;
    std::vector<double> metrics;
    for (std::int64_t i = 0; i < 200; ++i) {
      metrics.push_back(static_cast<double>(random() % 1000));
      state = next_state(state, metrics.back(), {.mode = mode});
      const auto record = mode == MetricMode::MIN ? std::min_element(metrics.begin(), metrics.end())
                                                  : std::max_element(metrics.begin(), metrics.end());
      EXPECT_EQ(state.best, *record);
      EXPECT_EQ(state.best_step, record - metrics.begin());  // the first of equal ones
      EXPECT_EQ(state.bad_steps, i - state.best_step);
      EXPECT_EQ(state.steps, i + 1);
    }
  }
}

TEST(EarlyStopping, RefusesOptionsOutOfRange) {
  EXPECT_THAT([] { EarlyStopping({.patience = 0}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("patience is 0, expected 1 or more")));
  EXPECT_THAT([] { EarlyStopping({.min_delta = NAN}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("min_delta is nan, expected 0 or more")));
  EXPECT_THAT([] { EarlyStopping().load_state_dict({}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("the state has no \"best\"")));
}

TEST(BestCheckpoints, KeepsTheBestOnesFirst) {
  BestCheckpoints best(2, MetricMode::MAX);
  EXPECT_EQ(best.best(), std::nullopt);
  EXPECT_THAT(best.add(10, 0.5), ElementsAre(10));
  EXPECT_THAT(best.add(20, 0.25), ElementsAre(10, 20));
  EXPECT_THAT(best.add(30, 0.75), ElementsAre(30, 10));
  EXPECT_THAT(best.add(40, NAN), ElementsAre(30, 10));
  EXPECT_THAT(best.add(50, 0.5), ElementsAre(30, 10));  // of equal ones the earlier
  EXPECT_THAT(best.add(60, INFINITE), ElementsAre(60, 30));
  EXPECT_EQ(best.best(), (ScoredStep{60, INFINITE}));
  EXPECT_THAT(best.add(60, 0.125), ElementsAre(30, 60));  // measured again
  EXPECT_THAT(best.add(30, NAN), ElementsAre(60));
}

// The k smallest of all, as sorting gives them.
TEST(BestCheckpoints, AreThoseThatSortingGives) {
  std::mt19937 random(5);
  BestCheckpoints best(4);
  std::vector<std::pair<double, std::int64_t>> all;
  for (std::int64_t step = 0; step < 100; ++step) {
    all.emplace_back(static_cast<double>(random() % 50), step);
    best.add(step, all.back().first);
    std::sort(all.begin(), all.end());
    std::vector<std::int64_t> expected;
    for (std::size_t i = 0; i < std::min<std::size_t>(4, all.size()); ++i) expected.push_back(all[i].second);
    EXPECT_EQ(best.steps(), expected);
  }
}

TEST(BestCheckpoints, LoadsTheBestOfAState) {
  BestCheckpoints three(3);
  EXPECT_THAT(three.state_dict()[0].second.sizes(), ElementsAre(0));
  for (const std::int64_t step : {1, 2, 3}) three.add(step, static_cast<double>(10 - step));
  BestCheckpoints two(2);
  two.load_state_dict(three.state_dict());
  EXPECT_THAT(two.scored_steps(), ElementsAre(ScoredStep{3, 7}, ScoredStep{2, 8}));
  two.load_state_dict(BestCheckpoints(1).state_dict());
  EXPECT_THAT(two.steps(), IsEmpty());
}

TEST(BestCheckpoints, RefusesArgumentsOutOfRange) {
  EXPECT_THAT([] { BestCheckpoints(0); }, ThrowsMessage<InvalidArgument>(HasSubstr("count is 0")));
  EXPECT_THAT([] { BestCheckpoints(1).add(-1, 0); }, ThrowsMessage<InvalidArgument>(HasSubstr("step is -1")));
  EXPECT_THAT([] { BestCheckpoints(1).load_state_dict(EarlyStopping().state_dict()); },
              ThrowsMessage<InvalidArgument>(HasSubstr("the state has no \"metrics\"")));
}

}  // namespace
}  // namespace metric_decisions_test
}  // namespace lockstep

#include "lockstep/launch/first_cause.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <csignal>
#include <vector>

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::Field;
using ::testing::Optional;

RankEnd end(int rank, ExitStatus status, int after_ms, bool was_stopped = false) {
  return {rank, status, was_stopped, false, milliseconds(after_ms), std::nullopt};
}

RankEnd told(RankEnd end, ErrorCode code, int culprit, int after_ms = 0) {
  end.told = ToldFailure{code, culprit, milliseconds(after_ms)};
  return end;
}

std::optional<int> first(std::vector<RankEnd> ends) {
  const auto cause = first_cause(ends);
  return cause ? std::optional(cause->rank) : std::nullopt;
}

auto is(int rank, CauseKind kind) {
  return Optional(AllOf(Field(&FirstCause::rank, rank), Field(&FirstCause::kind, kind)));
}

// The order in which the processes end must not matter.
void expect_in_every_order(std::vector<RankEnd> ends, int rank, CauseKind kind) {
  std::sort(ends.begin(), ends.end(), [](const RankEnd& a, const RankEnd& b) { return a.rank < b.rank; });
  do {
    std::vector<RankEnd> timed = ends;
    for (std::size_t i = 0; i < timed.size(); ++i) timed[i].after = milliseconds(1000 + 10 * i);
    EXPECT_THAT(first_cause(timed), is(rank, kind));
  } while (std::next_permutation(ends.begin(), ends.end(),
                                 [](const RankEnd& a, const RankEnd& b) { return a.rank < b.rank; }));
}

// ---- without reports of the ranks, only the order is known

TEST(FirstCause, IsNoneWhenAllWentWell) {
  EXPECT_EQ(first({}), std::nullopt);
  EXPECT_EQ(first({end(0, {0, 0}, 5), end(1, {0, 0}, 6)}), std::nullopt);
}

TEST(FirstCause, IsNoneWhenTheLauncherStoppedThem) {
  EXPECT_EQ(first({end(0, {0, SIGTERM}, 5, true), end(1, {1, 0}, 6, true)}), std::nullopt);
}

TEST(FirstCause, IsTheEarliest) {
  EXPECT_EQ(first({end(2, {0, 0}, 1), end(1, {7, 0}, 5), end(0, {1, 0}, 6)}), 1);
  EXPECT_EQ(first({end(1, {7, 0}, 5), end(0, {1, 0}, 5)}), 1);
}

TEST(FirstCause, IsTheKilledRankThatSurvivorsOvertook) {
  EXPECT_EQ(first({end(0, {1, 0}, 500), end(2, {0, SIGKILL}, 520)}), 2);
  EXPECT_EQ(first({end(0, {0, SIGABRT}, 500), end(2, {0, SIGSEGV}, 520)}), 2);
}

TEST(FirstCause, StaysTheEarliestWhenTheKilledRankCameMuchLater) {
  EXPECT_EQ(first({end(0, {1, 0}, 500), end(2, {0, SIGKILL}, 700)}), 0);
}

TEST(FirstCause, StaysTheEarliestOfSeveralKilledOrAborted) {
  EXPECT_EQ(first({end(3, {0, SIGKILL}, 5), end(2, {0, SIGSEGV}, 6)}), 3);
  EXPECT_EQ(first({end(3, {4, 0}, 5), end(2, {0, SIGABRT}, 6)}), 3);
  EXPECT_EQ(first({end(3, {4, 0}, 5), end(2, {0, SIGKILL}, 6, true)}), 3);
}

// ---- with reports of the ranks

TEST(FirstCause, IsTheRankThatTheOthersLostInWhateverOrderTheyEnd) {
  expect_in_every_order(
      {told(end(0, {1, 0}, 0), ErrorCode::PEER_LOST, 2), told(end(1, {1, 0}, 0), ErrorCode::PEER_LOST, 2),
       end(2, {1, 0}, 0), told(end(3, {0, SIGABRT}, 0), ErrorCode::PEER_LOST, 2)},
      2, CauseKind::FAILED);
}

TEST(FirstCause, IsAtTheEndOfAChain) {
  expect_in_every_order(
      {told(end(0, {1, 0}, 0), ErrorCode::ABORTED, 1), told(end(1, {1, 0}, 0), ErrorCode::PEER_LOST, 2),
       told(end(2, {1, 0}, 0), ErrorCode::PEER_LOST, 3), end(3, {9, 0}, 0)},
      3, CauseKind::FAILED);
}

TEST(FirstCause, IsTheRankThatGaveUpItself) {
  expect_in_every_order(
      {told(end(0, {1, 0}, 0), ErrorCode::ABORTED, 1), told(end(1, {1, 0}, 0), ErrorCode::ABORTED, 1)}, 1,
      CauseKind::FAILED);
}

TEST(FirstCause, GoesBeforeARankThatFailedWithoutAWord) {
  // Rank 0 failed for a reason that it does not report, such as a lost store, before rank 2 ended.
  EXPECT_THAT(
      first_cause(std::vector{end(0, {1, 0}, 10), told(end(1, {1, 0}, 20), ErrorCode::PEER_LOST, 2, 5),
                              end(2, {3, 0}, 30)}),
      is(2, CauseKind::FAILED));
}

TEST(FirstCause, IsTheRankThatReturnedEarly) {
  const auto cause =
      first_cause(std::vector{end(1, {0, 0}, 100), told(end(0, {1, 0}, 200), ErrorCode::PEER_LOST, 1, 150)});
  EXPECT_THAT(cause, is(1, CauseKind::LEFT));
  EXPECT_EQ(cause->witness, 0);
  EXPECT_EQ(cause->after, milliseconds(100));
}

TEST(FirstCause, IsTheRankThatStoodStill) {
  RankEnd stopped = end(1, {0, SIGKILL}, 900, true);
  EXPECT_THAT(first_cause(std::vector{told(end(0, {1, 0}, 500), ErrorCode::TIMEOUT, 1, 490), stopped}),
              is(1, CauseKind::LATE));
  stopped.stood_still = true;
  EXPECT_THAT(first_cause(std::vector{told(end(0, {1, 0}, 500), ErrorCode::TIMEOUT, 1, 490), stopped}),
              is(1, CauseKind::STOOD));
}

TEST(FirstCause, OfACircleIsWhomTheFirstOfThemNamed) {
  EXPECT_EQ(first({told(end(0, {1, 0}, 500), ErrorCode::TIMEOUT, 1, 490),
                   told(end(1, {1, 0}, 400), ErrorCode::TIMEOUT, 0, 495)}),
            1);
}

TEST(FirstCause, MayBeARankOfWhichNothingIsKnown) {
  const auto cause = first_cause(std::vector{told(end(0, {1, 0}, 500), ErrorCode::PEER_LOST, 5, 490)});
  EXPECT_THAT(cause, is(5, CauseKind::LOST));
  EXPECT_FALSE(cause->is_known);
}

TEST(FirstCause, IsNotOneThatFailedBecauseOfSomebody) {
  EXPECT_EQ(first({told(end(0, {1, 0}, 10), ErrorCode::TIMEOUT, -1), end(1, {2, 0}, 20)}), 1);
  EXPECT_EQ(first({told(end(0, {1, 0}, 10), ErrorCode::TIMEOUT, -1), end(1, {0, 0}, 20)}), 0);
}

}  // namespace
}  // namespace lockstep

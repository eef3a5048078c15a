#include "lockstep/comm/backends/shared/diagnosis.h"

#include <gtest/gtest.h>

#include <set>

#include "testing/fresh_control.h"

namespace lockstep::shared {
namespace {

class PeersOfTheTest : public Peers {
 public:
  bool alive(int rank) const override { return !dead.contains(rank); }
  std::string detail(int rank) const override { return "pid " + std::to_string(100 + rank); }
  bool stopped(int rank) const override { return stopped_ones.contains(rank); }
  bool lend_private_memory() const override { return false; }
  bool read(int, std::uint64_t, std::span<std::byte>) const override { return false; }

  std::set<int> dead;
  std::set<int> stopped_ones;
};

// A barrier that waits for some ranks.
class BarrierOf : public Waitable {
 public:
  explicit BarrierOf(std::vector<int> late, bool is_ready = false)
      : late_(std::move(late)), is_ready_(is_ready) {}
  bool ready() override { return is_ready_; }
  std::uint64_t progress() const override { return 0; }
  std::vector<int> awaited() const override { return late_; }
  std::string describe() const override { return "barrier #5"; }

 private:
  const std::vector<int> late_;
  const bool is_ready_;
};

// Rank 0 of three looks.
class DiagnosisOfThree : public ::testing::Test {
 protected:
  DiagnosisOfThree() {
    membership_.size = 3;
    membership_.peers = peers_;
  }
  void leaves(int rank) {
    memory_.control.rank_line(rank).presence.store(static_cast<std::uint32_t>(Presence::LEFT));
  }

  const lockstep::testing::FreshControl memory_{3};
  const std::shared_ptr<PeersOfTheTest> peers_ = std::make_shared<PeersOfTheTest>();
  Membership membership_;
  const Diagnosis diagnosis_{membership_, memory_.control};
};

TEST_F(DiagnosisOfThree, FindsNothingWhileAllAreThere) {
  BarrierOf barrier({1, 2});
  EXPECT_FALSE(diagnosis_.lost_peer(barrier));
}

TEST_F(DiagnosisOfThree, ADeadRankIsALossEvenWhereItIsNotAwaited) {
  peers_->dead = {2};
  BarrierOf barrier({1});
  const auto failure = diagnosis_.lost_peer(barrier);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->code, ErrorCode::PEER_LOST);
  EXPECT_EQ(failure->peer, 2);
  EXPECT_EQ(failure->reporter, 0);
}

TEST_F(DiagnosisOfThree, ARankThatHasLeftIsALossOnlyWhereItIsAwaited) {
  leaves(1);
  peers_->dead = {1};
  BarrierOf of_another({2});
  EXPECT_FALSE(diagnosis_.lost_peer(of_another));
  BarrierOf of_it({1});
  const auto failure = diagnosis_.lost_peer(of_it);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->peer, 1);
}

TEST_F(DiagnosisOfThree, ALossIsNoneWhereTheRankHadDoneItsPart) {
  peers_->dead = {1};
  BarrierOf barrier({}, /*is_ready=*/true);
  EXPECT_FALSE(diagnosis_.lost_peer(barrier));
}

TEST_F(DiagnosisOfThree, ATimeoutBlamesAStoppedRankBeforeALateOne) {
  peers_->stopped_ones = {2};
  const GroupFailure failure = diagnosis_.timeout(BarrierOf({1, 2}), std::chrono::seconds(3));
  EXPECT_EQ(failure.code, ErrorCode::TIMEOUT);
  EXPECT_EQ(failure.peer, 2);
  EXPECT_EQ(diagnosis_.timeout(BarrierOf({1}), std::chrono::seconds(3)).peer, 1);
  EXPECT_EQ(diagnosis_.timeout(BarrierOf({}), std::chrono::seconds(3)).peer, -1);
}

TEST_F(DiagnosisOfThree, ARankIsDescribedWithItsProcessAndItsRankInTheWorld) {
  EXPECT_EQ(diagnosis_.describe_peer(1), "rank 1 (pid 101)");
  membership_.world_ranks = {0, 4, 6};
  EXPECT_EQ(diagnosis_.describe_peer(1), "rank 1 (rank 4 of the world, pid 104)");
}

TEST_F(DiagnosisOfThree, LateRanksAreNamedWithTheirLastCall) {
  EXPECT_EQ(diagnosis_.last_call(1), "");
  const auto barrier = verb_and_purpose({.verb = Verb::BARRIER});
  memory_.control.rank_line(1).last.store(pack(4, barrier));
  EXPECT_EQ(diagnosis_.last_call(1), "barrier #4");
  peers_->stopped_ones = {2};
  EXPECT_EQ(
      diagnosis_.late_ranks(BarrierOf({1, 2})),
      "rank 1 (pid 101) (last collective call: barrier #4), rank 2 (pid 102), which is stopped (SIGSTOP)");
}

}  // namespace
}  // namespace lockstep::shared

#include "lockstep/comm/group/group_failure.h"

#include <gmock/gmock.h>

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using ::testing::ThrowsMessage;

const GroupPlace PLACE{.group = "rows", .rank = 1, .size = 2, .world_rank = 5};

TEST(GroupFailure, ThePlaceNamesTheWorldsRankWhereItIsAnother) {
  EXPECT_EQ(text_of(PLACE), "group \"rows\", rank 1 of 2 (rank 5 of the world)");
  EXPECT_EQ(text_of({.group = "world", .rank = 1, .size = 2, .world_rank = 1}),
            "group \"world\", rank 1 of 2");
}

TEST(GroupFailure, IsThrownWithThePlaceTheFinderAndWhatToDo) {
  const GroupFailure failure = aborted(0, "the loss is not a number", ErrorCode::ABORTED, -1);
  EXPECT_THAT(
      [&] { throw_failure("barrier #3", PLACE, failure, "; trace: /t"); },
      ThrowsMessage<Aborted>(
          "barrier #3 on group \"rows\", rank 1 of 2 (rank 5 of the world): rank 0 aborted the group: "
          "the loss is not a number (found by rank 0); the group is closed: "
          "destroy_process_group(), then init_process_group() to start anew; trace: /t"));
}

TEST(GroupFailure, TheErrorIsThatOfTheCode) {
  const auto thrown = [](ErrorCode code) { throw_failure("x", PLACE, {code, "text", 3, 1}); };
  EXPECT_THROW(thrown(ErrorCode::TIMEOUT), Timeout);
  EXPECT_THROW(thrown(ErrorCode::BACKEND), DistBackendError);
  try {
    thrown(ErrorCode::PEER_LOST);
    FAIL();
  } catch (const PeerLost& lost) {
    EXPECT_EQ(lost.peer(), 3);
  }
  try {
    throw_failure("x", PLACE, mismatched(1, "sizes differ", MismatchKind::SIZES));
    FAIL();
  } catch (const Mismatch& mismatch) {
    EXPECT_EQ(mismatch.kind(), MismatchKind::SIZES);
  }
}

TEST(GroupFailure, ALostPeerIsDeadHasLeftOrCannotBeReached) {
  LostPeer lost{.rank = 3, .description = "rank 3 (pid 7)"};
  const auto text = [&] {
    return peer_lost(0, lost, "send", ", waiting to send to it", "; usually a loop").text;
  };
  EXPECT_EQ(text(),
            "rank 3 (pid 7) is dead while rank 0 was in send, waiting to send to it; it had made no "
            "collective call");
  lost.last_call = "barrier #2";
  lost.unreachable = "No route to host";
  EXPECT_EQ(text(),
            "rank 3 (pid 7) cannot be reached (No route to host) while rank 0 was in send, waiting to send "
            "to it; its "
            "last collective call was barrier #2");
  lost.has_left = true;
  EXPECT_EQ(text(),
            "rank 3 (pid 7) has left the group while rank 0 was in send, waiting to send to it; its last "
            "collective "
            "call was barrier #2; usually a loop");
}

TEST(GroupFailure, ATimeoutSaysHowLongForWhomAndWhy) {
  const GroupFailure failure = timed_out(0, milliseconds(1500), "rank 2", "; usually a loop", 2);
  EXPECT_EQ(failure.text, "no progress for 1.5 s, waiting for rank 2; usually a loop");
  EXPECT_EQ(failure.peer, 2);
  EXPECT_EQ(waiting_text("barrier #1", PLACE, milliseconds(5000), "rank 0"),
            "barrier #1 on group \"rows\", rank 1 of 2 (rank 5 of the world): waiting for 5 s for rank 0");
}

TEST(GroupFailure, AtMostEightLateRanksAreNamed) {
  const auto number = [](int rank) { return std::to_string(rank); };
  EXPECT_EQ(list_of_late({}, number), "the other ranks to finish their part");
  EXPECT_EQ(list_of_late({4, 2}, number), "4, 2");
  EXPECT_EQ(list_of_late({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, number), "1, 2, 3, 4, 5, 6, 7, 8 and 2 more");
}

TEST(GroupFailure, WhoLeftAndWhoForkedReadIt) {
  EXPECT_THAT([] { throw_left("split", PLACE); },
              ThrowsMessage<Aborted>(
                  "split on group \"rows\", rank 1 of 2 (rank 5 of the world): this rank has left the group "
                  "(destroy_process_group)"));
  EXPECT_THAT([] { throw_forked("a wait", PLACE); },
              ThrowsMessage<Aborted>(::testing::HasSubstr("is a fork of the one that")));
}

}  // namespace
}  // namespace lockstep

#include "lockstep/comm/backends/shared/failure_record.h"

#include <gtest/gtest.h>

#include <string>

#include "testing/fresh_control.h"

namespace lockstep::shared {
namespace {

using ::lockstep::testing::FreshControl;

TEST(FailureRecord, EveryRankReadsTheFirstFailure) {
  const FreshControl memory(2);
  const FailureRecord mine(memory.control);
  const FailureRecord others(memory.control);
  EXPECT_FALSE(mine.is_set());
  mine.record({ErrorCode::MISMATCH, "sizes differ", 1, 0, MismatchKind::SIZES});
  others.record({ErrorCode::TIMEOUT, "too late", 0, 1});
  ASSERT_TRUE(others.is_set());
  const GroupFailure found = others.read(1);
  EXPECT_EQ(found.code, ErrorCode::MISMATCH);
  EXPECT_EQ(found.text, "sizes differ");
  EXPECT_EQ(found.peer, 1);
  EXPECT_EQ(found.reporter, 0);
  EXPECT_EQ(found.kind, MismatchKind::SIZES);
}

TEST(FailureRecord, ALongTextIsCutToTheRoomInTheHeader) {
  const FreshControl memory(1);
  const FailureRecord failure(memory.control);
  failure.record({ErrorCode::ABORTED, std::string(5000, 'x'), -1, 0});
  EXPECT_EQ(failure.read(0).text, std::string(sizeof(Header::failure_text) - 1, 'x'));
}

TEST(FailureRecord, AReporterThatDiedWhileItWroteIsReported) {
  const FreshControl memory(2);
  const FailureRecord failure(memory.control);
  memory.control.header().failure_state.store(static_cast<std::uint32_t>(FailureState::WRITING));
  ASSERT_TRUE(failure.is_set());
  const GroupFailure found = failure.read(1);
  EXPECT_EQ(found.code, ErrorCode::PEER_LOST);
  EXPECT_EQ(found.reporter, 1);
}

}  // namespace
}  // namespace lockstep::shared

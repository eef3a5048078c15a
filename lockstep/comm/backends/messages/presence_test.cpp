#include "lockstep/comm/backends/messages/presence.h"

#include <gmock/gmock.h>

namespace lockstep::messages {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const GroupPlace PLACE{.group = "rows", .rank = 1, .size = 2, .world_rank = 1};

TEST(Presence, AMemberThatLeavesThrowsThatItHasLeft) {
  Presence presence(PLACE);
  EXPECT_TRUE(presence.is_member());
  presence.leave();
  EXPECT_FALSE(presence.is_member());
  EXPECT_TRUE(presence.has_left());
  EXPECT_THAT([&] { presence.throw_unusable("split"); },
              ThrowsMessage<Aborted>(HasSubstr("this rank has left the group")));
}

TEST(Presence, TheFailureIsThrownAlsoAfterLeaving) {
  Presence presence(PLACE);
  presence.fail(aborted(0, "the loss is not a number", ErrorCode::ABORTED, -1));
  presence.add_note("; trace: /t");
  EXPECT_FALSE(presence.is_member());
  EXPECT_FALSE(presence.has_left());
  const auto thrown = ThrowsMessage<Aborted>(::testing::AllOf(HasSubstr("barrier #3 on group \"rows\""),
                                                              HasSubstr("the loss is not a number"),
                                                              HasSubstr("; trace: /t")));
  EXPECT_THAT([&] { presence.throw_unusable("barrier #3"); }, thrown);
  presence.leave();
  EXPECT_TRUE(presence.has_left());
  EXPECT_THAT([&] { std::rethrow_exception(presence.failure_of("barrier #3")); }, thrown);
}

}  // namespace
}  // namespace lockstep::messages

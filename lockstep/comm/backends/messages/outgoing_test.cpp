#include "lockstep/comm/backends/messages/outgoing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/vector_link.h"

namespace lockstep::messages {
namespace {

using harness::CountingOwner;
using harness::numbered;
using harness::VectorLink;
using harness::Wire;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class OutgoingTest : public ::testing::Test {
 protected:
  std::shared_ptr<Send> post(const std::vector<std::byte>& data) {
    auto send = std::make_shared<Send>(Send{&owner, 1, {}, data});
    outgoing.post(send);
    return send;
  }
  static Header asks_for(std::uint32_t transfer) {
    Header header;
    header.kind = Kind::ACCEPT;
    header.transfer = transfer;
    return header;
  }

  Wire wire;
  VectorLink link{wire};
  CountingOwner owner;
  Outgoing outgoing{link, /*shows_memory=*/false};
};

TEST_F(OutgoingTest, ASmallMessageGoesAtOnce) {
  const auto data = numbered(100);
  EXPECT_TRUE(post(data)->over);
  EXPECT_EQ(owner.sent_, 1);
  EXPECT_TRUE(outgoing.flushed());
  EXPECT_EQ(std::vector(wire.outgoing.begin() + sizeof(Header), wire.outgoing.end()), data);
  EXPECT_THAT(wire.take_kinds(), ElementsAre(Kind::MESSAGE));
}

TEST_F(OutgoingTest, ALargeMessageWaitsUntilItIsAskedForAndGoesInChunksInTurnWithOthers) {
  const auto data = numbered(2 * CHUNK_BYTES);
  post(data);
  post(data);
  EXPECT_THAT(wire.take_kinds(), ElementsAre(Kind::OFFER, Kind::OFFER));
  outgoing.accepted(asks_for(1));
  outgoing.accepted(asks_for(2));
  outgoing.answer(Kind::ACCEPT, 5);
  EXPECT_THAT(wire.take_kinds(),
              ElementsAre(Kind::ACCEPT, Kind::CHUNK, Kind::CHUNK, Kind::CHUNK, Kind::CHUNK));
  EXPECT_EQ(owner.sent_, 2);
}

TEST_F(OutgoingTest, BeyondTheWindowSmallMessagesWaitTooUntilThereIsCredit) {
  const auto data = numbered(EAGER_LIMIT);
  const std::size_t fitting = EAGER_WINDOW / cost_of(EAGER_LIMIT);
  for (std::size_t i = 0; i < fitting; ++i) post(data);
  wire.take_kinds();
  post(data);
  EXPECT_THAT(wire.take_kinds(), ElementsAre(Kind::OFFER));
  outgoing.credited(cost_of(EAGER_LIMIT));
  post(data);
  EXPECT_THAT(wire.take_kinds(), ElementsAre(Kind::MESSAGE));
}

TEST_F(OutgoingTest, AFullLinkIsAskedToTellOfRoom) {
  const auto data = numbered(100);
  wire.room = 80;
  const auto send = post(data);
  EXPECT_TRUE(wire.wants_write);
  EXPECT_FALSE(send->over);
  EXPECT_FALSE(outgoing.flushed());
  wire.room = 1000;
  outgoing.write();
  EXPECT_FALSE(wire.wants_write);
  EXPECT_TRUE(send->over);
  EXPECT_THAT(wire.take_kinds(), ElementsAre(Kind::MESSAGE));
}

TEST_F(OutgoingTest, ACancelledMessageThatHasBegunIsFinishedWithoutItsMemory) {
  auto data = numbered(100);
  const auto whole = data;
  wire.room = 80;
  const auto send = post(data);
  outgoing.cancel(*send);
  std::fill(data.begin(), data.end(), std::byte{});
  wire.room = 1000;
  outgoing.write();
  EXPECT_EQ(std::vector(wire.outgoing.begin() + sizeof(Header), wire.outgoing.end()), whole);
  EXPECT_EQ(owner.sent_, 0);
}

TEST_F(OutgoingTest, ACancelledOfferIsNotSentWhenItIsAskedFor) {
  const auto data = numbered(CHUNK_BYTES);
  const auto send = post(data);
  outgoing.cancel(*send);
  wire.take_kinds();
  outgoing.accepted(asks_for(1));
  outgoing.write();
  EXPECT_THAT(wire.take_kinds(), IsEmpty());
}

TEST_F(OutgoingTest, ABrokenLinkIsNotWrittenToAndItsSendsAreAbandoned) {
  const auto small = numbered(100);
  const auto large = numbered(CHUNK_BYTES);
  const auto offered = post(large);
  wire.is_broken = true;
  const auto current = post(small);
  const auto queued = post(small);
  EXPECT_TRUE(outgoing.flushed()) << "nobody is to wait for it";
  EXPECT_FALSE(wire.wants_write);
  outgoing.close();
  wire.is_broken = false;
  wire.take_kinds();
  outgoing.post(Header());
  EXPECT_THAT(wire.take_kinds(), IsEmpty());
  EXPECT_THAT(outgoing.abandoned(), ElementsAre(offered, queued, current));
  EXPECT_THAT(outgoing.abandoned(), IsEmpty());
}

}  // namespace
}  // namespace lockstep::messages

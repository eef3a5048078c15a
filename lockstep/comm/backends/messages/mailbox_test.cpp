#include "lockstep/comm/backends/messages/mailbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/vector_link.h"

namespace lockstep::messages {
namespace {

using harness::CountingOwner;
using harness::numbered;
using harness::VectorLinks;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::size_t COUNT = 100;

// Rank 0 of two; what rank 1 would send is told to the mailbox.
class MailboxTest : public ::testing::Test {
 protected:
  Membership membership() {
    auto links = std::make_unique<VectorLinks>(0, 2);
    wire = &links->wire(1);
    Connections connections;
    connections.links = std::move(links);
    connections.peers.resize(2);
    Membership two;
    two.running = std::make_shared<Running>(std::move(connections), 0);
    two.ranks = {0, 1};
    return two;
  }

  // Of COUNT bytes.
  std::shared_ptr<Receive> receive_of(Verb verb, std::size_t whole = COUNT) {
    request.verb = verb;
    request.dtype = DType::UINT8;
    request.count = COUNT;
    return std::make_shared<Receive>(
        Receive{&owner, 1, verb == Verb::RECV ? 0U : 1U, 7, buffer, whole, false, 0, false, &request});
  }
  static Header header_of(Verb verb, std::size_t bytes = COUNT) {
    Header header;
    header.kind = Kind::MESSAGE;
    header.set({.verb = verb, .dtype = DType::UINT8, .root = 0, .count = bytes});
    header.sequence = 1;
    header.label = 7;
    header.bytes = header.whole = bytes;
    header.payload = static_cast<std::uint32_t>(bytes);
    return header;
  }

  harness::Wire* wire = nullptr;
  Roster roster{membership()};
  Mailbox mailbox{roster};
  CountingOwner owner;
  Request request;
  std::vector<std::byte> buffer = std::vector<std::byte>(COUNT);
};

TEST_F(MailboxTest, AMessageThatComesFirstIsKeptForItsReceive) {
  const auto data = numbered(COUNT);
  EXPECT_FALSE(mailbox.deliver(1, header_of(Verb::BROADCAST), data));
  const auto receive = receive_of(Verb::BROADCAST);
  auto message = mailbox.take_message(*receive, /*collective=*/true);
  ASSERT_TRUE(message);
  EXPECT_FALSE(mailbox.match(receive, std::move(*message)));
  EXPECT_EQ(buffer, data);
  EXPECT_TRUE(receive->over);
  EXPECT_EQ(owner.received_, 1);
  EXPECT_FALSE(mailbox.take_message(*receive, /*collective=*/true));
}

TEST_F(MailboxTest, APayloadGoesIntoTheReceiveThatWaitsForIt) {
  const auto receive = receive_of(Verb::RECV);
  receive->peer = ANY_SOURCE;
  mailbox.wait_for(receive, /*collective=*/false);
  const auto place = mailbox.place_for(1, header_of(Verb::SEND));
  EXPECT_FALSE(place.failure);
  EXPECT_EQ(place.destination.receive, receive);
  EXPECT_EQ(receive->peer, 1) << "now its source is known";
  const auto next = mailbox.place_for(1, header_of(Verb::SEND));
  EXPECT_EQ(next.destination.receive, nullptr);
  EXPECT_TRUE(next.destination.keep);
}

TEST_F(MailboxTest, ALargeMessageIsAskedForWhenItsReceiveIsThere) {
  Header offer = header_of(Verb::BROADCAST);
  offer.kind = Kind::OFFER;
  offer.payload = 0;
  mailbox.wait_for(receive_of(Verb::BROADCAST), /*collective=*/true);
  EXPECT_THAT(wire->take_kinds(), IsEmpty());
  EXPECT_FALSE(mailbox.deliver(1, offer, {}));
  EXPECT_THAT(wire->take_kinds(), ElementsAre(Kind::ACCEPT));
}

TEST_F(MailboxTest, AMessageOfAnotherSizeIsAFailure) {
  mailbox.wait_for(receive_of(Verb::ALL_GATHER), /*collective=*/true);
  const auto place = mailbox.place_for(1, header_of(Verb::ALL_GATHER, COUNT + 1));
  ASSERT_TRUE(place.failure);
  EXPECT_EQ(place.destination.receive, nullptr);
  EXPECT_EQ(place.failure->code, ErrorCode::MISMATCH);
  EXPECT_EQ(place.failure->kind, MismatchKind::SIZES);

  const auto receive = receive_of(Verb::RECV);
  mailbox.wait_for(receive, /*collective=*/false);
  const auto failure = mailbox.deliver(1, header_of(Verb::SEND, COUNT / 2), numbered(COUNT / 2));
  ASSERT_TRUE(failure);
  EXPECT_THAT(failure->text, HasSubstr("tag 7"));
  EXPECT_EQ(owner.received_, 0);
}

TEST_F(MailboxTest, AForgottenReceiveWaitsForNothing) {
  const auto receive = receive_of(Verb::BROADCAST);
  mailbox.wait_for(receive, /*collective=*/true);
  mailbox.forget(*receive);
  EXPECT_EQ(receive->owner, nullptr);
  EXPECT_TRUE(mailbox.place_for(1, header_of(Verb::BROADCAST)).destination.keep);
}

TEST_F(MailboxTest, MessagesOfSendAreNumberedByReceiver) {
  EXPECT_EQ(mailbox.next_number(1), 0U);
  EXPECT_EQ(mailbox.next_number(0), 0U);
  EXPECT_EQ(mailbox.next_number(1), 1U);
}

TEST_F(MailboxTest, TheSenderHasCreditForWhatIsThrownAway) {
  for (int i = 0; i < 2000; ++i) EXPECT_FALSE(mailbox.deliver(1, header_of(Verb::SEND), numbered(COUNT)));
  EXPECT_THAT(wire->take_kinds(), IsEmpty());
  mailbox.empty();
  EXPECT_THAT(wire->take_kinds(), ElementsAre(Kind::CREDIT, Kind::CREDIT));
}

}  // namespace
}  // namespace lockstep::messages

// What one side of a connection writes, and two sides that read each other's memory, over links that are
// vectors.
#include "lockstep/comm/backends/messages/connection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <optional>

#include "testing/vector_link.h"

namespace lockstep::messages {
namespace {

using harness::CountingOwner;
using harness::numbered;
using harness::VectorLink;
using harness::Wire;
using ::testing::ElementsAre;

// Accepts every offer into one buffer.
class Accepting final : public FrameReceiver {
 public:
  Connection* connection = nullptr;
  std::shared_ptr<Receive> receive;

  int pulls = 0;

  void has_to_pull(int) override { ++pulls; }
  Destination place_for(int, const Header&) override { return {}; }
  void arrived(int, const Header& header, std::vector<std::byte> payload) override {
    if (header.kind == Kind::OFFER) connection->accept(header, payload, receive);
  }
};

PeerMemory own_memory() { return {getpid(), PeerMemory::introduction()}; }

// One end of a connection within this process, whose memory both ends can read.
struct End {
  explicit End(const std::optional<PeerMemory>& memory = own_memory())
      : connection(std::make_unique<VectorLink>(wire), 1, receiver, memory) {
    receiver.connection = &connection;
  }

  void expect(std::span<std::byte> buffer) {
    receiver.receive = std::make_shared<Receive>(Receive{&owner, 1, 1, 0, buffer, buffer.size()});
  }
  std::shared_ptr<Send> send(std::span<const std::byte> data) {
    auto send = std::make_shared<Send>(Send{&owner, 1, {}, data});
    connection.post(send);
    return send;
  }
  // What it has written arrives at the other end; the kinds of the frames.
  std::vector<Kind> deliver_to(End& other) {
    other.wire.incoming.insert(other.wire.incoming.end(), wire.outgoing.begin(), wire.outgoing.end());
    auto kinds = wire.take_kinds();
    other.connection.read();
    return kinds;
  }

  Wire wire;
  CountingOwner owner;
  Accepting receiver;
  Connection connection;
};

// A message of which the receiver has heard.
struct Offered {
  explicit Offered(std::size_t bytes) : data(numbered(bytes)), buffer(bytes) {
    receiver.expect(buffer);
    send = sender.send(data);
    EXPECT_THAT(sender.deliver_to(receiver), ElementsAre(Kind::OFFER));
  }

  End sender;
  End receiver;
  std::vector<std::byte> data;
  std::vector<std::byte> buffer;
  std::shared_ptr<Send> send;
};

// Or the other side, which has to see the answer before it sends, would wait for all our data, and each
// direction of the link for the other.
TEST(Connection, AnswersGoOutBeforeData) {
  constexpr std::size_t BYTES = 2 * CHUNK_BYTES;
  Wire wire;
  Accepting receiver;
  Connection connection(std::make_unique<VectorLink>(wire), 1, receiver);
  receiver.connection = &connection;
  CountingOwner owner;
  std::vector<std::byte> buffer(BYTES);
  receiver.receive = std::make_shared<Receive>(Receive{&owner, 1, 1, 0, buffer, BYTES});
  const std::vector<std::byte> data(BYTES);
  connection.post(std::make_shared<Send>(Send{&owner, 1, {}, data}));
  EXPECT_THAT(wire.take_kinds(), ElementsAre(Kind::OFFER));

  Header accept;
  accept.kind = Kind::ACCEPT;
  accept.transfer = 1;
  wire.deliver(accept);
  Header offer;
  offer.kind = Kind::OFFER;
  offer.transfer = 7;
  offer.bytes = BYTES;
  wire.deliver(offer);
  connection.read();
  EXPECT_THAT(wire.take_kinds(), ElementsAre(Kind::ACCEPT, Kind::CHUNK, Kind::CHUNK));
}

TEST(ConnectionMemory, ALargeMessageIsReadOutOfTheSendersMemoryAndNeverSent) {
  ASSERT_TRUE(own_memory().can_be_read());
  Offered message((std::size_t{3} << 20U) + 7);
  auto& [sender, receiver, data, buffer, send] = message;
  EXPECT_EQ(receiver.receiver.pulls, 1);
  int pieces = 1;
  while (receiver.connection.pull()) ++pieces;
  EXPECT_GT(pieces, 1) << "others on the connection have no turn";
  EXPECT_EQ(buffer, data);
  EXPECT_EQ(receiver.owner.received_, 0) << "before the sender has said that it was there";
  EXPECT_EQ(sender.owner.sent_, 0);
  EXPECT_THAT(receiver.deliver_to(sender), ElementsAre(Kind::TAKEN));
  EXPECT_EQ(sender.owner.sent_, 1);
  EXPECT_TRUE(send->over);
  EXPECT_THAT(sender.deliver_to(receiver), ElementsAre(Kind::GIVEN));
  EXPECT_EQ(receiver.owner.received_, 1);
  EXPECT_FALSE(receiver.connection.pull());
}

TEST(ConnectionMemory, ASenderHearsEvery64MiBThatItGoesOn) {
  Offered message((std::size_t{64} << 20U) + 1);
  while (message.receiver.connection.pull()) continue;
  EXPECT_THAT(message.receiver.deliver_to(message.sender), ElementsAre(Kind::TAKEN, Kind::TAKEN));
  EXPECT_EQ(message.sender.owner.sent_, 1);
}

TEST(ConnectionMemory, WhatTheSenderHasWithdrawnIsNotReceived) {
  Offered message(std::size_t{1} << 20U);
  message.receiver.connection.pull();
  message.sender.connection.cancel(*message.send);
  while (message.receiver.connection.pull()) continue;
  EXPECT_THAT(message.receiver.deliver_to(message.sender), ElementsAre(Kind::TAKEN));
  EXPECT_THAT(message.sender.deliver_to(message.receiver), ElementsAre());
  EXPECT_EQ(message.receiver.owner.received_, 0);
  EXPECT_EQ(message.sender.owner.sent_, 0);
}

TEST(ConnectionMemory, AReceiverThatGivesUpIsNotWrittenTo) {
  Offered message(std::size_t{1} << 20U);
  message.receiver.connection.cancel(*message.receiver.receiver.receive);
  EXPECT_FALSE(message.receiver.connection.pull());
  EXPECT_EQ(message.buffer, std::vector<std::byte>(message.buffer.size()));
}

TEST(ConnectionMemory, WhatCannotBeReadIsAskedFor) {
  constexpr std::size_t BYTES = std::size_t{1} << 20U;
  End sender;
  End receiver;
  std::vector<std::byte> buffer(BYTES);
  receiver.expect(buffer);
  // Nothing lies at the beginning of memory.
  sender.send({static_cast<const std::byte*>(nullptr), BYTES});
  sender.deliver_to(receiver);
  EXPECT_FALSE(receiver.connection.pull());
  EXPECT_THAT(receiver.wire.take_kinds(), ElementsAre(Kind::ACCEPT));
}

TEST(ConnectionMemory, WhoeverCannotReadOrSaysNoAddressIsSentIt) {
  constexpr std::size_t BYTES = CHUNK_BYTES;
  const auto data = numbered(BYTES);
  for (const bool sender_can : {false, true}) {
    End sender(sender_can ? std::optional(own_memory()) : std::nullopt);
    End receiver(sender_can ? std::nullopt : std::optional(own_memory()));
    std::vector<std::byte> buffer(BYTES);
    receiver.expect(buffer);
    sender.send(data);
    EXPECT_THAT(sender.deliver_to(receiver), ElementsAre(Kind::OFFER));
    EXPECT_THAT(receiver.deliver_to(sender), ElementsAre(Kind::ACCEPT));
    EXPECT_THAT(sender.deliver_to(receiver), ElementsAre(Kind::CHUNK));
    EXPECT_EQ(receiver.owner.received_, 1);
    EXPECT_EQ(buffer, data);
  }
}

}  // namespace
}  // namespace lockstep::messages

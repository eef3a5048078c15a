// The order of what one side of a connection writes, over a link that is two vectors.
#include "lockstep/comm/backends/tcp_connection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace lockstep::tcp {
namespace {

using ::testing::ElementsAre;

struct Wire {
  std::vector<std::byte> incoming;  // all of it can be read at once
  std::vector<std::byte> outgoing;

  void deliver(const Header& header) {
    const auto bytes = std::as_bytes(std::span(&header, 1));
    incoming.insert(incoming.end(), bytes.begin(), bytes.end());
  }
  // Of the frames written since the last look.
  std::vector<Kind> take_kinds() {
    std::vector<Kind> kinds;
    for (std::size_t at = 0; at < outgoing.size();) {
      Header header;
      std::memcpy(&header, &outgoing[at], sizeof(Header));
      kinds.push_back(header.kind);
      at += sizeof(Header) + header.payload;
    }
    outgoing.clear();
    return kinds;
  }
};

class VectorLink final : public Link {
 public:
  explicit VectorLink(Wire& wire) : wire_(wire) {}

  StreamResult receive_some(std::span<std::byte> buffer) override {
    StreamResult result;
    result.bytes = std::min(buffer.size(), wire_.incoming.size());
    std::copy_n(wire_.incoming.begin(), result.bytes, buffer.begin());
    wire_.incoming.erase(wire_.incoming.begin(),
                         wire_.incoming.begin() + static_cast<std::ptrdiff_t>(result.bytes));
    return result;
  }
  StreamResult send_some(const std::array<std::span<const std::byte>, 2>& parts) override {
    StreamResult result;
    for (const auto& part : parts) {
      wire_.outgoing.insert(wire_.outgoing.end(), part.begin(), part.end());
      result.bytes += part.size();
    }
    return result;
  }
  void want_write(bool) override {}
  bool flushed() const override { return true; }
  void close() override {}

 private:
  Wire& wire_;
};

class Owner final : public TransferOwner {
 public:
  virtual ~Owner() = default;
  void moved() override {}
  void sent(Send&) override {}
  void dropped(Send&) override {}
  void received(Receive&) override {}
};

// Accepts every offer into one buffer.
class Accepting final : public FrameReceiver {
 public:
  Connection* connection = nullptr;
  std::shared_ptr<Receive> receive;

  Destination place_for(int, const Header&) override { return {}; }
  void arrived(int, const Header& header, std::vector<std::byte>) override {
    if (header.kind == Kind::OFFER) connection->accept(header, receive);
  }
};

// Or the other side, which has to see the answer before it sends, would wait for all our data, and each direction of the link for
// the other.
TEST(Connection, AnswersGoOutBeforeData) {
  constexpr std::size_t BYTES = 2 * CHUNK_BYTES;
  Wire wire;
  Accepting receiver;
  Connection connection(std::make_unique<VectorLink>(wire), 1, receiver);
  receiver.connection = &connection;
  Owner owner;
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

}  // namespace
}  // namespace lockstep::tcp

#include "lockstep/store/handshake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/os/poll_set.h"
#include "lockstep/os/tcp_socket.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

const Secret SECRET = Secret::from_text("0123456789abcdefghijklmnopqrstuv", "test");
const Secret OTHER = Secret::from_text("vutsrqponmlkjihgfedcba9876543210", "test");
const HandshakeHello HELLO = {HandshakePurpose::STORE, 7, opaque_text("rank 3")};

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string hello_of(ClientHandshake& client) { return client.take_output(); }

// The two sides exchange strings.
struct Exchange {
  ClientHandshake client;
  ServerHandshake server;
  std::string hello, challenge, proof;

  explicit Exchange(const Secret& mine = SECRET, const Secret& theirs = SECRET,
                    const HandshakeHello& say = HELLO)
      : client(mine, say), server(theirs, HandshakePurpose::STORE) {}
  void run() {
    hello = client.take_output();
    server.feed(bytes_of(hello));
    challenge = server.take_output();
    client.feed(bytes_of(challenge));
    proof = client.take_output();
    server.feed(bytes_of(proof));
  }
};

TEST(Handshake, BothSidesAcceptAndTheServerKnowsWhoCame) {
  Exchange both;
  both.run();
  EXPECT_EQ(both.client.state(), HandshakeState::ACCEPTED);
  EXPECT_EQ(both.server.state(), HandshakeState::ACCEPTED);
  EXPECT_EQ(both.server.hello().role, 7);
  EXPECT_EQ(opaque_text(both.server.hello().opaque), "rank 3");
  EXPECT_EQ(both.hello.size() + both.challenge.size() + both.proof.size(), 216U);
}

// The proofs, computed from the description in the header.
TEST(Handshake, ProofsAreHmacSha256OfSideHelloAndChallenge) {
  Exchange both;
  both.run();
  const auto expected = [&](char side) {
    const std::string text =
        std::string("lockstep handshake ") + side + both.hello + both.challenge.substr(0, 44);
    std::string digest(32, '\0');
    HMAC(EVP_sha256(), SECRET.bytes().data(), 32, reinterpret_cast<const unsigned char*>(text.data()),
         text.size(), reinterpret_cast<unsigned char*>(digest.data()), nullptr);
    return digest;
  };
  EXPECT_EQ(both.challenge.substr(44), expected('S'));
  EXPECT_EQ(both.proof, expected('C'));
}

TEST(Handshake, WorksByteByByteAndLeavesWhatFollows) {
  ClientHandshake client(SECRET, HELLO);
  ServerHandshake server(SECRET, HandshakePurpose::STORE);
  const auto drip = [](auto& to, const std::string& message) {
    for (const char c : message) EXPECT_EQ(to.feed(bytes_of(std::string(1, c))), 1U);
  };
  drip(server, client.take_output());
  drip(client, server.take_output());
  const std::string proof = client.take_output();
  EXPECT_EQ(server.feed(bytes_of(proof + "a request")), proof.size());
  EXPECT_EQ(server.state(), HandshakeState::ACCEPTED);
  EXPECT_EQ(server.feed(bytes_of("more")), 0U);
}

TEST(Handshake, AnotherSecretIsRefusedByBothSides) {
  Exchange both(SECRET, OTHER);
  both.run();
  EXPECT_EQ(both.client.state(), HandshakeState::REFUSED);
  EXPECT_THAT(both.client.reason(), HasSubstr("secret"));
  EXPECT_EQ(both.proof, "") << "who does not trust the server proves nothing to it";
  both.server.feed(bytes_of(std::string(32, 'x')));
  EXPECT_EQ(both.server.state(), HandshakeState::REFUSED);
  EXPECT_THAT(both.server.reason(), HasSubstr("secret"));
}

TEST(Handshake, AChangedBitAnywhereIsRefused) {
  for (std::size_t at = 0; at < 216; ++at) {
    Exchange both;
    const auto changed = [at, from = std::size_t{0}](std::string message) mutable {
      if (at >= from && at < from + message.size()) message[at - from] ^= 1;
      from += message.size();
      return message;
    };
    auto change = changed;
    both.server.feed(bytes_of(change(both.client.take_output())));
    std::string challenge = both.server.take_output();
    if (challenge.empty()) challenge = std::string(76, '\0');
    both.client.feed(bytes_of(change(challenge)));
    std::string proof = both.client.take_output();
    if (proof.empty()) {
      EXPECT_EQ(both.client.state(), HandshakeState::REFUSED) << "byte " << at;
      continue;
    }
    both.server.feed(bytes_of(change(proof)));
    EXPECT_EQ(both.server.state(), HandshakeState::REFUSED) << "byte " << at;
  }
}

TEST(Handshake, AReplayedClientIsRefused) {
  Exchange recorded;
  recorded.run();
  ServerHandshake server(SECRET, HandshakePurpose::STORE);
  server.feed(bytes_of(recorded.hello + recorded.proof));
  EXPECT_EQ(server.state(), HandshakeState::REFUSED);
}

TEST(Handshake, AReplayedServerIsRefused) {
  Exchange recorded;
  recorded.run();
  ClientHandshake client(SECRET, HELLO);
  client.feed(bytes_of(recorded.challenge));
  EXPECT_EQ(client.state(), HandshakeState::REFUSED);
}

TEST(Handshake, ReflectedMessagesAreRefused) {
  ClientHandshake client(SECRET, HELLO);
  client.feed(bytes_of(hello_of(client)));  // its own hello instead of a challenge
  EXPECT_EQ(client.state(), HandshakeState::REFUSED);

  ClientHandshake other(SECRET, HELLO);
  ServerHandshake server(SECRET, HandshakePurpose::STORE);
  server.feed(bytes_of(hello_of(other)));
  server.feed(bytes_of(server.take_output().substr(44)));  // the server's own proof
  EXPECT_EQ(server.state(), HandshakeState::REFUSED);
}

TEST(Handshake, AnotherPurposeIsRefused) {
  Exchange both(SECRET, SECRET, {HandshakePurpose::GROUP, 0, {}});
  both.run();
  EXPECT_EQ(both.server.state(), HandshakeState::REFUSED);
}

TEST(Handshake, AnotherVersionIsToldToBothSides) {
  ClientHandshake client(SECRET, HELLO);
  ServerHandshake server(SECRET, HandshakePurpose::STORE);
  std::string hello = client.take_output();
  hello[8] = 9;
  server.feed(bytes_of(hello));
  EXPECT_EQ(server.state(), HandshakeState::REFUSED);
  EXPECT_THAT(server.reason(), HasSubstr("version 9"));
  std::string challenge = server.take_output();
  challenge[8] = 5;
  client.feed(bytes_of(challenge));
  EXPECT_THAT(client.reason(), HasSubstr("version 5"));
}

TEST(Handshake, GarbageIsRefusedAtItsFirstWrongByte) {
  for (const std::string& garbage :
       {std::string("GET / HTTP/1.1\r\n"), std::string("\x16\x03\x01"), std::string(1, '\0')}) {
    ServerHandshake server(SECRET, HandshakePurpose::STORE);
    server.feed(bytes_of(garbage));
    EXPECT_EQ(server.state(), HandshakeState::REFUSED);
    EXPECT_EQ(server.take_output(), "");
    ClientHandshake client(SECRET, HELLO);
    client.feed(bytes_of(garbage));
    EXPECT_EQ(client.state(), HandshakeState::REFUSED);
  }
}

TEST(Handshake, WhatIsCutOffDecidesNothing) {
  ClientHandshake client(SECRET, HELLO);
  ServerHandshake server(SECRET, HandshakePurpose::STORE);
  const std::string hello = client.take_output();
  server.feed(bytes_of(hello.substr(0, 107)));
  EXPECT_EQ(server.state(), HandshakeState::RUNNING);
  EXPECT_EQ(server.needed(), 1U);
  EXPECT_EQ(server.take_output(), "");
}

TEST(Handshake, OpaqueTextMustFit) {
  EXPECT_EQ(opaque_text(opaque_text(std::string(63, 'x'))), std::string(63, 'x'));
  EXPECT_THROW(opaque_text(std::string(64, 'x')), InternalError);
}

struct Sockets {
  Fd client;
  Fd server;
};

Sockets connected() {
  const Fd listener = tcp_listen("127.0.0.1", 0);
  Sockets both;
  both.client = tcp_connect("127.0.0.1", tcp_local_address(listener.get()).port, Deadline::in(20s));
  PollSet wait;
  wait.want_read(listener.get());
  wait.run(Deadline::in(20s));
  both.server = tcp_accept(listener.get()).socket;
  return both;
}

TEST(HandshakeOverTcp, Accepts) {
  const Sockets both = connected();
  std::thread client([&] { authenticate_to_server(both.client.get(), SECRET, HELLO, Deadline::in(20s)); });
  const HandshakeHello hello =
      authenticate_client(both.server.get(), SECRET, HandshakePurpose::STORE, Deadline::in(20s));
  client.join();
  EXPECT_EQ(opaque_text(hello.opaque), "rank 3");
}

TEST(HandshakeOverTcp, BothSidesSayWhyTheyRefuse) {
  Sockets both = connected();
  std::string client_said;
  std::thread client([&] {
    try {
      authenticate_to_server(both.client.get(), OTHER, HELLO, Deadline::in(20s));
    } catch (const StoreError& error) {
      client_said = error.what();
    }
    both.client.reset();
  });
  EXPECT_THROW(authenticate_client(both.server.get(), SECRET, HandshakePurpose::STORE, Deadline::in(20s)),
               StoreError);
  client.join();
  EXPECT_THAT(client_said, HasSubstr("secret"));
}

TEST(HandshakeOverTcp, ASilentPeerIsATimeout) {
  const Sockets both = connected();
  EXPECT_THROW(authenticate_to_server(both.client.get(), SECRET, HELLO, Deadline::in(50ms)), Timeout);
  EXPECT_THROW(authenticate_client(both.server.get(), OTHER, HandshakePurpose::STORE, Deadline::in(50ms)),
               Timeout);
}

}  // namespace
}  // namespace lockstep

// Mutual authentication: the first exchange on every TCP connection, in which both sides prove that they know
// the job's secret. No encryption follows: an eavesdropper on the network can read the data, but without the
// secret it cannot take part.
//
//   // the connecting side (blocking)
//   const HandshakeHello hello = {HandshakePurpose::STORE, role, opaque};
//   authenticate_to_server(socket, secret, hello, deadline);
//
//   // the accepting side: one object per connection, in a poll loop (or authenticate_client(), blocking)
//   ServerHandshake handshake(secret, HandshakePurpose::STORE);
//   const std::size_t used = handshake.feed(bytes_read);         // takes at most needed(): later bytes are
//                                                                // not part of the handshake
//   send(handshake.take_output());
//   if (handshake.state() == HandshakeState::ACCEPTED) use(handshake.hello());
//
// There are three messages of fixed size, 216 bytes in all. Neither side parses other data before them:
//
//   client → server  hello, 108 bytes     magic 8, version 1, purpose 1, role 1, zero 1, nonce 32, opaque 64
//   server → client  challenge, 76 bytes  magic 8, version 1, status 1, zero 2, nonce 32, proof 32
//   client → server  proof, 32 bytes      proof 32
//
// A proof is HMAC-SHA256 under the secret. Its text has the side that sends it, the whole hello with the
// purpose, and the challenge up to its proof. So a message cannot be reused on another connection (both
// nonces are fresh), be sent back to its sender (the side), or serve another purpose. Comparison takes
// constant time. A server answers at most one hello per connection. As with any such protocol without
// encryption, an attacker can relay two connections to each other. A process that must not talk to itself
// compares the opaque bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/os/secret.h"

namespace lockstep {

enum class HandshakePurpose : std::uint8_t { STORE = 1, GROUP = 2, LAUNCHER = 3 };

inline constexpr std::size_t HANDSHAKE_OPAQUE_BYTES = 64;
inline constexpr std::size_t HANDSHAKE_HELLO_BYTES = 108;
inline constexpr std::size_t HANDSHAKE_CHALLENGE_BYTES = 76;
inline constexpr std::size_t HANDSHAKE_PROOF_BYTES = 32;

// The connecting side's statement about itself. The proofs cover it.
struct HandshakeHello {
  HandshakePurpose purpose = HandshakePurpose::STORE;
  std::uint8_t role = 0;                                 // its meaning is up to the caller
  std::array<char, HANDSHAKE_OPAQUE_BYTES> opaque = {};  // for example ranks; see opaque_text()
};

std::array<char, HANDSHAKE_OPAQUE_BYTES> opaque_text(
    const std::string& text);  // zero-filled; InternalError when too long
std::string opaque_text(const std::array<char, HANDSHAKE_OPAQUE_BYTES>& bytes);  // up to the first zero

enum class HandshakeState { RUNNING, ACCEPTED, REFUSED };

// The side that accepted the connection.
class ServerHandshake {
 public:
  ServerHandshake(const Secret& secret, HandshakePurpose purpose) : secret_(secret), purpose_(purpose) {}

  HandshakeState state() const { return state_; }
  std::size_t needed() const;                             // bytes that it can take now; 0 once it has ended
  std::size_t feed(std::span<const std::byte> bytes);     // how many it took
  std::string take_output();                              // bytes to send, also after a refusal
  const HandshakeHello& hello() const { return hello_; }  // valid once ACCEPTED
  // Why it was REFUSED; contains nothing that the other side sent.
  const std::string& reason() const { return reason_; }

 private:
  void read_hello();
  void check_proof();
  void refuse(std::string reason);

  const Secret secret_;
  const HandshakePurpose purpose_;
  HandshakeState state_ = HandshakeState::RUNNING;
  bool has_hello_ = false;
  std::string input_;       // of the message that is arriving
  std::string transcript_;  // hello and challenge without its proof
  std::string output_;
  HandshakeHello hello_;
  std::string reason_;
};

// The side that connected. Its hello is in take_output() from the start.
class ClientHandshake {
 public:
  ClientHandshake(const Secret& secret, const HandshakeHello& hello);

  HandshakeState state() const { return state_; }
  std::size_t needed() const {
    return state_ == HandshakeState::RUNNING ? HANDSHAKE_CHALLENGE_BYTES - input_.size() : 0;
  }
  std::size_t feed(std::span<const std::byte> bytes);
  std::string take_output();
  const std::string& reason() const { return reason_; }

 private:
  void check_challenge();
  void refuse(std::string reason);

  const Secret secret_;
  HandshakeState state_ = HandshakeState::RUNNING;
  std::string input_;
  std::string hello_;
  std::string output_;
  std::string reason_;
};

// The other side closed the connection without an answer: it refused this process, is not a Lockstep server,
// or is flooded and drops connections at random.
class HandshakeCutOff : public StoreError {
 public:
  using StoreError::StoreError;
};

// Blocking forms on a connected socket (os/tcp_socket.h). They throw Timeout, and StoreError that names the
// other side's address and the reason of the refusal; HandshakeCutOff if the other side closed without a
// reason.
void authenticate_to_server(int socket, const Secret& secret, const HandshakeHello& hello, Deadline deadline);
HandshakeHello authenticate_client(int socket, const Secret& secret, HandshakePurpose purpose,
                                   Deadline deadline);

}  // namespace lockstep

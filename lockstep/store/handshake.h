// Mutual proof, first thing on every TCP connection, that both sides know the job's secret. No encryption
// follows: who can read the wire can read the data, but without the secret nobody gets to speak.
//
//   // whoever connects (blocking)
//   const HandshakeHello hello = {HandshakePurpose::STORE, role, opaque};
//   authenticate_to_server(socket, secret, hello, deadline);
//
//   // whoever accepts: one object per connection, in a poll loop (or authenticate_client(), blocking)
//   ServerHandshake handshake(secret, HandshakePurpose::STORE);
//   const std::size_t used = handshake.feed(bytes_read);         // never more than needed(): what follows is
//                                                                // not its business
//   send(handshake.take_output());
//   if (handshake.state() == HandshakeState::ACCEPTED) use(handshake.hello());
//
// Three messages of fixed size, 216 bytes in all; nothing else is parsed before:
//
//   client → server   hello magic 8, version 1, purpose 1, role 1, zero 1, nonce 32, opaque 64 108 bytes
//   server → client   challenge magic 8, version 1, status 1, zero 2, nonce 32, proof 32 76 bytes
//   client → server   proof 32 bytes 32 bytes
//
// A proof is HMAC-SHA256 under the secret over a text with the side that speaks, the purpose inside the
// hello, the whole hello, and the challenge up to its proof. So a message is of no use on another connection
// (fresh nonces from both sides), when sent back (the side), or for another purpose. Comparison takes
// constant time. A server answers at most one hello per connection. Relaying two connections to each other is
// possible, as with every such protocol without encryption; who must not talk to itself looks at the opaque
// bytes.
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

// What the side that connects says of itself. Covered by the proofs.
struct HandshakeHello {
  HandshakePurpose purpose = HandshakePurpose::STORE;
  std::uint8_t role = 0;                                 // the caller's own meaning
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
  std::size_t needed() const;                             // bytes it can take now; 0 once it has ended
  std::size_t feed(std::span<const std::byte> bytes);     // how many it took
  std::string take_output();                              // to be sent, also after a refusal
  const HandshakeHello& hello() const { return hello_; }  // valid once ACCEPTED
  const std::string& reason() const { return reason_; }   // why REFUSED, without anything the other side sent

 private:
  void read_hello();
  void check_proof();
  void refuse(std::string reason);

  const Secret secret_;
  const HandshakePurpose purpose_;
  HandshakeState state_ = HandshakeState::RUNNING;
  bool has_hello_ = false;
  std::string input_;       // of the message that is coming
  std::string transcript_;  // hello and challenge without its proof
  std::string output_;
  HandshakeHello hello_;
  std::string reason_;
};

// The side that connected. The hello waits in take_output() from the start.
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

// The other side closed the connection without a word: it refused us, is no server of ours, or drops
// connections at random because it is flooded.
class HandshakeCutOff : public StoreError {
 public:
  using StoreError::StoreError;
};

// Blocking forms on a connected socket (os/tcp_socket.h). Throw StoreError naming the other side's address
// and why it was refused or refused us (HandshakeCutOff if it did not say), Timeout.
void authenticate_to_server(int socket, const Secret& secret, const HandshakeHello& hello, Deadline deadline);
HandshakeHello authenticate_client(int socket, const Secret& secret, HandshakePurpose purpose,
                                   Deadline deadline);

}  // namespace lockstep

#include "lockstep/store/handshake.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "lockstep/base/str.h"
#include "lockstep/os/tcp_socket.h"

namespace lockstep {
namespace {

constexpr std::string_view MAGIC = "LOCKSTEP";
constexpr char VERSION = 1;
constexpr std::size_t HEADER_BYTES = MAGIC.size() + 4;
constexpr std::size_t NONCE_BYTES = 32;
constexpr std::size_t AT_VERSION = MAGIC.size();
constexpr std::size_t AT_PURPOSE = AT_VERSION + 1;
constexpr std::size_t AT_STATUS = AT_VERSION + 1;
constexpr std::size_t AT_ROLE = AT_PURPOSE + 1;
constexpr std::size_t AT_OPAQUE = HEADER_BYTES + NONCE_BYTES;
constexpr std::size_t SIGNED_CHALLENGE = HANDSHAKE_CHALLENGE_BYTES - HANDSHAKE_PROOF_BYTES;
static_assert(AT_OPAQUE + HANDSHAKE_OPAQUE_BYTES == HANDSHAKE_HELLO_BYTES);
static_assert(HEADER_BYTES + NONCE_BYTES == SIGNED_CHALLENGE);
static_assert(HANDSHAKE_HELLO_BYTES + HANDSHAKE_CHALLENGE_BYTES + HANDSHAKE_PROOF_BYTES < 256);

constexpr char STATUS_CHALLENGE = 0;
constexpr char STATUS_OTHER_VERSION = 1;

enum class Side : char { CLIENT = 'C', SERVER = 'S' };

std::string nonce() { return Secret::random().raw(); }

std::string proof(const Secret& secret, Side side, const std::string& transcript) {
  const std::string text = str("lockstep handshake ", static_cast<char>(side), transcript);
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  const auto key = secret.bytes();
  if (HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data(),
           &size) == nullptr ||
      size != HANDSHAKE_PROOF_BYTES) {
    throw InternalError("handshake: OpenSSL cannot compute HMAC-SHA256");
  }
  return {reinterpret_cast<const char*>(digest.data()), size};
}

bool is_proof(std::string_view given, const std::string& expected) {
  return given.size() == expected.size() &&
         CRYPTO_memcmp(given.data(), expected.data(), expected.size()) == 0;
}

// Takes at most the missing bytes.
std::size_t take(std::span<const std::byte> bytes, std::size_t needed, std::string& input) {
  const std::size_t count = std::min(bytes.size(), needed);
  input.append(reinterpret_cast<const char*>(bytes.data()), count);
  return count;
}

std::string hello_message(const HandshakeHello& hello) {
  std::string message(MAGIC);
  message += VERSION;
  message += static_cast<char>(hello.purpose);
  message += static_cast<char>(hello.role);
  message += '\0';
  message += nonce();
  message.append(hello.opaque.data(), hello.opaque.size());
  return message;
}

// A stranger's message is refused at its first wrong byte, not when enough bytes have come.
bool begins_as_ours(std::string_view message) {
  const std::size_t known = std::min(message.size(), MAGIC.size());
  return message.substr(0, known) == MAGIC.substr(0, known);
}

std::string other_version(char version) {
  return str("it speaks version ", static_cast<int>(static_cast<unsigned char>(version)),
             " of the handshake, this process version ", static_cast<int>(VERSION),
             "; use the same Lockstep everywhere");
}

template <typename Handshake> void send_output(int socket, Handshake& handshake, Deadline deadline) {
  const std::string output = handshake.take_output();
  tcp_write_all(socket, std::as_bytes(std::span(output)),
                deadline);  // if the connection is over, the next read reports it
}

template <typename Handshake>
void run(int socket, Handshake& handshake, const char* them, Deadline deadline) {
  const std::string peer = text(tcp_peer_address(socket));
  while (handshake.needed() > 0) {
    send_output(socket, handshake, deadline);
    std::array<std::byte, HANDSHAKE_HELLO_BYTES> bytes{};
    const auto part = std::span(bytes).first(std::min(bytes.size(), handshake.needed()));
    if (!tcp_read_all(socket, part, deadline)) {
      throw HandshakeCutOff(
          str(them, ' ', peer,
              " closed the connection before it was authenticated; does it have the same secret?"));
    }
    handshake.feed(part);
  }
  send_output(socket, handshake, deadline);
  if (handshake.state() != HandshakeState::ACCEPTED) {
    throw StoreError(str(them, ' ', peer, " was refused: ", handshake.reason()));
  }
}

}  // namespace

std::array<char, HANDSHAKE_OPAQUE_BYTES> opaque_text(const std::string& text) {
  std::array<char, HANDSHAKE_OPAQUE_BYTES> bytes{};
  if (text.size() >= bytes.size())
    throw InternalError("handshake: the opaque text is too long: " + printable(text));
  std::copy(text.begin(), text.end(), bytes.begin());
  return bytes;
}

std::string opaque_text(const std::array<char, HANDSHAKE_OPAQUE_BYTES>& bytes) {
  return {bytes.begin(), std::find(bytes.begin(), bytes.end(), '\0')};
}

std::size_t ServerHandshake::needed() const {
  if (state_ != HandshakeState::RUNNING) return 0;
  return (has_hello_ ? HANDSHAKE_PROOF_BYTES : HANDSHAKE_HELLO_BYTES) - input_.size();
}

std::size_t ServerHandshake::feed(std::span<const std::byte> bytes) {
  std::size_t used = 0;
  while (state_ == HandshakeState::RUNNING && used < bytes.size()) {
    used += take(bytes.subspan(used), needed(), input_);
    if (!has_hello_ && !begins_as_ours(input_)) {
      refuse("it does not speak this protocol");
    } else if (needed() == 0) {
      has_hello_ ? check_proof() : read_hello();
      input_.clear();
    }
  }
  return used;
}

void ServerHandshake::read_hello() {
  std::string challenge(MAGIC);
  challenge += VERSION;
  if (input_[AT_VERSION] != VERSION) {
    challenge += STATUS_OTHER_VERSION;
    challenge.resize(HANDSHAKE_CHALLENGE_BYTES);
    output_ += challenge;
    return refuse(other_version(input_[AT_VERSION]));
  }
  challenge += STATUS_CHALLENGE;
  challenge.resize(HEADER_BYTES);
  challenge += nonce();
  has_hello_ = true;
  transcript_ = input_ + challenge;
  output_ += challenge + proof(secret_, Side::SERVER, transcript_);
  hello_.purpose = static_cast<HandshakePurpose>(input_[AT_PURPOSE]);
  hello_.role = static_cast<std::uint8_t>(input_[AT_ROLE]);
  std::copy_n(input_.begin() + AT_OPAQUE, HANDSHAKE_OPAQUE_BYTES, hello_.opaque.begin());
}

void ServerHandshake::check_proof() {
  if (!is_proof(input_, proof(secret_, Side::CLIENT, transcript_)))
    return refuse("it does not know this job's secret");
  if (hello_.purpose != purpose_) return refuse("it asks for a service that this port does not offer");
  state_ = HandshakeState::ACCEPTED;
}

void ServerHandshake::refuse(std::string reason) {
  state_ = HandshakeState::REFUSED;
  reason_ = std::move(reason);
}

std::string ServerHandshake::take_output() { return std::exchange(output_, {}); }

ClientHandshake::ClientHandshake(const Secret& secret, const HandshakeHello& hello)
    : secret_(secret), hello_(hello_message(hello)), output_(hello_) {}

std::size_t ClientHandshake::feed(std::span<const std::byte> bytes) {
  const std::size_t used = take(bytes, needed(), input_);
  if (!begins_as_ours(input_)) {
    refuse("it does not speak this protocol");
  } else if (state_ == HandshakeState::RUNNING && needed() == 0) {
    check_challenge();
  }
  return used;
}

void ClientHandshake::check_challenge() {
  if (input_[AT_VERSION] != VERSION || input_[AT_STATUS] == STATUS_OTHER_VERSION) {
    return refuse(other_version(input_[AT_VERSION]));
  }
  const std::string transcript = hello_ + input_.substr(0, SIGNED_CHALLENGE);
  if (!is_proof(std::string_view(input_).substr(SIGNED_CHALLENGE),
                proof(secret_, Side::SERVER, transcript))) {
    return refuse("it does not know this job's secret");
  }
  output_ += proof(secret_, Side::CLIENT, transcript);
  state_ = HandshakeState::ACCEPTED;
}

void ClientHandshake::refuse(std::string reason) {
  state_ = HandshakeState::REFUSED;
  reason_ = std::move(reason);
}

std::string ClientHandshake::take_output() { return std::exchange(output_, {}); }

void authenticate_to_server(int socket, const Secret& secret, const HandshakeHello& hello,
                            Deadline deadline) {
  ClientHandshake handshake(secret, hello);
  run(socket, handshake, "the server", deadline);
}

HandshakeHello authenticate_client(int socket, const Secret& secret, HandshakePurpose purpose,
                                   Deadline deadline) {
  ServerHandshake handshake(secret, purpose);
  run(socket, handshake, "the client", deadline);
  return handshake.hello();
}

}  // namespace lockstep

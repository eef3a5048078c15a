// What goes over a connection: frames of one header and a payload, which is at most CHUNK_BYTES long in a
// CHUNK and at most EAGER_LIMIT otherwise. Little-endian, as all machines that Lockstep knows; another kind
// of machine fails at compile time.
//
//   MESSAGE   a whole message of at most EAGER_LIMIT bytes, of a collective or of send()
//   OFFER     the sender has a larger one: `bytes` of it, known as `transfer` on this connection. To a rank
//             of the same machine: where it lies in the sender's memory (8 bytes)
//   ACCEPT    the receiver has a buffer for `transfer`
//   CHUNK     the next bytes of `transfer`
//   TAKEN     instead of ACCEPT: the receiver has read so many `bytes` of `transfer` out of the sender's
//             memory
//   GIVEN     all of `transfer` was there until it had been taken
//   CALL      "I have called this": sent by a rank that waits, so that two ranks that only wait learn that
//             they disagree
//   CREDIT    `bytes` of MESSAGEs have been taken out of the receiver's memory
//   FAILURE   the group has failed: `count` is the ErrorCode, `root` the peer it names, `label` who found it,
//             the payload its text
//   GOODBYE   the sender has left the group
//
// Order between two ranks: everything but chunks arrives in the order sent. Nothing here is trusted: check()
// is made before a header is used, and what it passes costs the receiver at most EAGER_LIMIT bytes of memory
// per frame.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>

#include "lockstep/comm/call.h"

namespace lockstep::messages {

static_assert(std::endian::native == std::endian::little);

enum class Kind : std::uint8_t {
  MESSAGE = 1,
  OFFER,
  ACCEPT,
  CHUNK,
  TAKEN,
  GIVEN,
  CALL,
  CREDIT,
  FAILURE,
  GOODBYE
};

struct Header {
  std::uint16_t magic = 0x4b4c;  // "LK"
  std::uint8_t version = 3;
  std::uint8_t purpose = 0;
  Kind kind = Kind::GOODBYE;
  std::uint8_t verb = 0;
  std::uint8_t dtype = 0;
  std::uint8_t op = 0;
  std::uint64_t group = 0;
  std::uint64_t sequence = 0;  // of the collective; of the message between these two ranks
  std::uint64_t count = 0;
  std::uint32_t label = 0;    // of the message in its collective's schedule; the tag of a send
  std::uint32_t payload = 0;  // bytes that follow
  std::uint64_t bytes = 0;    // of the message
  std::uint64_t whole = 0;    // of the contribution that the message is a part of
  std::int32_t root = 0;
  std::uint32_t transfer = 0;

  Call call() const {
    return {.verb = static_cast<Verb>(verb),
            .dtype = static_cast<DType>(dtype),
            .op = static_cast<ReduceOp>(op),
            .purpose = static_cast<Purpose>(purpose),
            .root = root,
            .count = count};
  }
  void set(const Call& call);
  bool is_message_of_send() const { return static_cast<Verb>(verb) == Verb::SEND; }
};
static_assert(sizeof(Header) == 64 && std::has_unique_object_representations_v<Header>);

// Larger messages wait until the receiver has asked for them and then go straight into its buffer.
inline constexpr std::size_t EAGER_LIMIT = std::size_t{64} << 10U;
// Of messages that nobody has asked for yet, from one rank to another; beyond it messages of any size wait to
// be asked for.
inline constexpr std::size_t EAGER_WINDOW = std::size_t{1} << 20U;
inline constexpr std::size_t CHUNK_BYTES = std::size_t{256} << 10U;
inline constexpr std::size_t LARGEST_TEXT = 4096;

// What a message of `bytes` bytes takes of the window.
constexpr std::size_t cost_of(std::size_t bytes) { return bytes + 256; }

// What is wrong with a header that has arrived; empty if nothing.
std::string check(const Header& header);

}  // namespace lockstep::messages

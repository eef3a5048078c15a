// The frames of a connection. A frame is one header and a payload, which is at most CHUNK_BYTES long in a
// CHUNK and at most EAGER_LIMIT otherwise. Numbers are little-endian; a build for a big-endian machine fails.
//
//   MESSAGE   a whole message of at most EAGER_LIMIT bytes, of a collective or of send()
//   OFFER     the sender has a larger message of `bytes` bytes, called `transfer` on this connection. To a
//             rank of the same machine the payload says where it lies in the sender's memory (8 bytes)
//   ACCEPT    the receiver has a buffer for `transfer`
//   CHUNK     the next bytes of `transfer`
//   TAKEN     instead of ACCEPT: the receiver has read `bytes` bytes of `transfer` so far, out of the
//             sender's memory
//   GIVEN     the sender confirms that `transfer` stayed valid until TAKEN said that all of it was read
//   CALL      the collective that the sender called. A waiting rank sends it, so that two ranks that only
//             wait learn that they disagree
//   CREDIT    the receiver has released the memory of `bytes` bytes of MESSAGEs
//   FAILURE   the group has failed: `count` is the ErrorCode, `root` the peer that it names, `label` the rank
//             that reported it, and the payload its text
//   GOODBYE   the sender has left the group
//
// Order between two ranks: frames other than CHUNK arrive in the order sent. Nothing here is trusted. check()
// examines each header before its use. A header that passes costs the receiver at most EAGER_LIMIT bytes of
// memory.
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
  std::uint64_t sequence = 0;  // of the collective, or of the message between these two ranks
  std::uint64_t count = 0;
  std::uint32_t label = 0;    // of the message in its collective's schedule, or the tag of a send
  std::uint32_t payload = 0;  // bytes that follow
  std::uint64_t bytes = 0;    // of the message
  std::uint64_t whole = 0;    // bytes of the contribution that the message is a part of
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

// A larger message waits until the receiver asks for it, and then goes straight into the receiver's buffer.
inline constexpr std::size_t EAGER_LIMIT = std::size_t{64} << 10U;
// Limit of the MESSAGEs from one rank to another that no receive has taken yet. Beyond it, messages of any
// size are offered.
inline constexpr std::size_t EAGER_WINDOW = std::size_t{1} << 20U;
inline constexpr std::size_t CHUNK_BYTES = std::size_t{256} << 10U;
inline constexpr std::size_t LARGEST_TEXT = 4096;

// Bytes of the window that a message of `bytes` bytes uses.
constexpr std::size_t cost_of(std::size_t bytes) { return bytes + 256; }

// Returns the reason why a header that has arrived is invalid; empty if it is valid.
std::string check(const Header& header);

}  // namespace lockstep::messages

// Reads and writes on a connected stream socket that never block.
//
//   const StreamResult got = receive_some(fd, buffer);
//   if (got.has_ended()) peer_is_gone(got.reason);
//   use(buffer, got.bytes);                               // 0 and not ended: nothing there now
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace lockstep {

enum class StreamEnd : std::uint8_t {
  NONE,    // more may come through
  PEER,    // the process at the other end closed the stream, or ended
  BROKEN,  // anything else, as a network that is down
};

struct StreamResult {
  std::size_t bytes = 0;
  StreamEnd end = StreamEnd::NONE;
  std::string reason;  // of an end, for people: "end of stream", "Network is unreachable"

  bool has_ended() const { return end != StreamEnd::NONE; }
};

StreamResult receive_some(int fd, std::span<std::byte> buffer);
// The two parts as one, as far as the socket takes them.
StreamResult send_some(int fd, const std::array<std::span<const std::byte>, 2>& parts);
// Bytes written that the other side's kernel has not acknowledged; 0 also when that cannot be known.
std::size_t unacknowledged(int fd);

}  // namespace lockstep

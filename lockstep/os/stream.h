// Non-blocking reads and writes on a connected stream socket.
//
//   const StreamResult got = receive_some(fd, buffer);
//   if (got.has_ended()) peer_is_gone(got.reason);
//   use(buffer, got.bytes);                               // 0 bytes and not ended: no data yet
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace lockstep {

enum class StreamEnd : std::uint8_t {
  NONE,    // more data may come
  PEER,    // the process at the other end closed the stream, or ended
  BROKEN,  // any other end, such as a network failure
};

struct StreamResult {
  std::size_t bytes = 0;
  StreamEnd end = StreamEnd::NONE;
  std::string reason;  // why it ended, for people: "end of stream", "Network is unreachable"

  bool has_ended() const { return end != StreamEnd::NONE; }
};

StreamResult receive_some(int fd, std::span<std::byte> buffer);
// Sends the two parts as one, as far as the socket accepts them.
StreamResult send_some(int fd, const std::array<std::span<const std::byte>, 2>& parts);
// Bytes written that the peer's kernel has not acknowledged; also 0 if that is unknown.
std::size_t unacknowledged(int fd);

}  // namespace lockstep

// Reads and writes on a connected stream socket that never block.
//
//   const StreamResult got = receive_some(fd, buffer);
//   if (got.closed) peer_is_gone(got.reason);
//   use(buffer, got.bytes);                               // 0 and not closed: nothing there now
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>

namespace lockstep {

struct StreamResult {
  std::size_t bytes = 0;
  bool closed = false;  // by the other side, or broken: no more will come through
  std::string reason;   // of closed: "end of stream", "Connection reset by peer"
};

StreamResult receive_some(int fd, std::span<std::byte> buffer);
// The two parts as one, as far as the socket takes them.
StreamResult send_some(int fd, const std::array<std::span<const std::byte>, 2>& parts);
// Bytes written that the other side's kernel has not acknowledged; 0 also when that cannot be known.
std::size_t unacknowledged(int fd);

}  // namespace lockstep

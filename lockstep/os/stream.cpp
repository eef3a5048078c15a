#include "lockstep/os/stream.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace lockstep {
namespace {

StreamResult failure() {
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return {};
  const bool by_peer = errno == ECONNRESET || errno == EPIPE;
  return {0, by_peer ? StreamEnd::PEER : StreamEnd::BROKEN, std::strerror(errno)};
}

}  // namespace

StreamResult receive_some(int fd, std::span<std::byte> buffer) {
  const ssize_t count = recv(fd, buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (count < 0) return failure();
  if (count == 0 && !buffer.empty()) return {0, StreamEnd::PEER, "end of stream"};
  return {static_cast<std::size_t>(count), StreamEnd::NONE, ""};
}

StreamResult send_some(int fd, const std::array<std::span<const std::byte>, 2>& parts) {
  std::array<iovec, 2> vectors = {};
  for (std::size_t i = 0; i < parts.size(); ++i)
    vectors.at(i) = {const_cast<std::byte*>(parts.at(i).data()), parts.at(i).size()};
  msghdr message = {};
  message.msg_iov = vectors.data();
  message.msg_iovlen = vectors.size();
  const ssize_t count = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (count < 0) return failure();
  return {static_cast<std::size_t>(count), StreamEnd::NONE, ""};
}

std::size_t unacknowledged(int fd) {
  int bytes = 0;
  return ioctl(fd, SIOCOUTQ, &bytes) == 0 && bytes > 0 ? static_cast<std::size_t>(bytes) : 0;
}

}  // namespace lockstep

#include "lockstep/os/pipe.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "lockstep/base/error.h"
#include "lockstep/os/file_size_limit.h"

namespace lockstep {
namespace {

SocketPair make_socket_pair(int type) {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    throw SystemError("cannot make a pair of sockets", errno);
  }
  return {Fd(ends[0]), Fd(ends[1])};
}

}  // namespace

Pipe make_pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) throw SystemError("cannot make a pipe", errno);
  return {Fd(ends[0]), Fd(ends[1])};
}

SocketPair make_packet_socket_pair() { return make_socket_pair(SOCK_SEQPACKET); }

SocketPair make_stream_socket_pair() { return make_socket_pair(SOCK_STREAM); }

void set_nonblocking(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    throw SystemError("cannot make a descriptor non-blocking", errno);
  }
}

ReadResult read_available(int fd, std::string& text) {
  constexpr std::size_t MOST = 65536;
  const std::size_t before = text.size();
  text.resize(before + MOST);
  const ssize_t got = read(fd, text.data() + before, MOST);
  const int error = got < 0 ? errno : 0;
  text.resize(before + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  if (got > 0) return ReadResult::MORE;
  if (error == EAGAIN || error == EINTR) return ReadResult::NOTHING_NOW;
  return ReadResult::END;
}

long write_available(int fd, std::string_view text) {
  const NoFileSizeSignal quiet;
  const ssize_t put = write(fd, text.data(), text.size());
  if (put >= 0) return put;
  return errno == EAGAIN || errno == EINTR ? 0 : -1;
}

// open() returns the lowest free number, so the loop ends once 0, 1 and 2 are taken.
void ensure_standard_descriptors() {
  for (;;) {
    const int fd =
        open("/dev/null", O_RDWR);  // NOLINT(android-cloexec-open): 0, 1 and 2 are meant to be inherited
    if (fd < 0) throw SystemError("cannot open /dev/null", errno);
    if (fd <= STDERR_FILENO) continue;
    close(fd);
    return;
  }
}

}  // namespace lockstep

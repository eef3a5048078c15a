#include "lockstep/os/unix_socket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/os/machine.h"
#include "lockstep/os/open_files.h"
#include "lockstep/os/poll_set.h"

namespace lockstep {
namespace {

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    throw SystemError(
        str("socket path \"", printable(path), "\" is too long; set XDG_RUNTIME_DIR to a shorter folder"),
        ENAMETOOLONG);
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

Fd new_socket() {
  Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket.valid()) throw SystemError("cannot create a Unix socket", errno);
  return socket;
}

bool same_user(int socket) {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

union Control {
  cmsghdr align;
  std::array<char, CMSG_SPACE(sizeof(int) * MAX_MESSAGE_FDS)> bytes;
};

void put_fds(msghdr& header, Control& control, const std::vector<int>& fds) {
  header.msg_control = control.bytes.data();
  header.msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
  cmsghdr* rights = CMSG_FIRSTHDR(&header);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
  std::memcpy(CMSG_DATA(rights), fds.data(), sizeof(int) * fds.size());
}

[[noreturn]] void throw_too_many_under_way() {
  throw SystemError(
      str("cannot pass a descriptor to another rank: the processes of this user have more than ",
          open_files().soft,
          " in flight, which is the limit of open files (ulimit -n); raise it, or end the processes that do "
          "not "
          "receive them"),
      ETOOMANYREFS);
}

void wait_writable(int socket, Deadline deadline) {
  pollfd entry = {socket, POLLOUT, 0};
  const Nap nap(deadline.nap());
  if (poll(&entry, 1, poll_milliseconds(deadline)) < 0 && errno != EINTR)
    throw SystemError("cannot poll another rank's socket", errno);
}

void take_fds(msghdr& header, Message& message) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      message.fds.emplace_back(fd);
    }
  }
}

}  // namespace

bool send_message(int socket, const std::string& text, const std::vector<int>& fds) {
  return send_message(socket, text, fds, Deadline::never()) == Sent::SENT;
}

Sent send_message(int socket, const std::string& text, const std::vector<int>& fds, Deadline deadline) {
  if (text.empty() || text.size() > MAX_MESSAGE_BYTES || fds.size() > MAX_MESSAGE_FDS) {
    throw InternalError(
        str("send_message: ", text.size(), " bytes and ", fds.size(), " descriptors do not fit a message"));
  }
  iovec part = {const_cast<char*>(text.data()), text.size()};
  Control control = {};
  msghdr header = {};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (!fds.empty()) put_fds(header, control, fds);
  while (sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN) return Sent::CLOSED;
    if (errno == EAGAIN) {
      if (deadline.expired()) return Sent::TIMED_OUT;
      wait_writable(socket, deadline);
    } else if (errno == ETOOMANYREFS) {
      if (deadline.expired()) throw_too_many_under_way();
      // The kernel does not report when a descriptor has been received, so the sender tries again.
      nap(std::chrono::milliseconds(1));
    } else if (errno != EINTR) {
      throw SystemError("cannot send to another rank's socket", errno);
    }
  }
  return Sent::SENT;
}

unsigned long socket_number(int fd) {
  struct stat status = {};
  return fstat(fd, &status) == 0 ? status.st_ino : 0;
}

Received receive_message(int socket, Deadline deadline, Message& message) {
  if (!wait_readable({socket}, deadline)) return Received::TIMED_OUT;
  message.text.resize(MAX_MESSAGE_BYTES);
  message.fds.clear();
  iovec part = {message.text.data(), message.text.size()};
  Control control = {};
  msghdr header = {};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.bytes.data();
  header.msg_controllen = control.bytes.size();
  ssize_t length = 0;
  do {
    length = recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
  } while (length < 0 &&
           (errno == EINTR || errno == ECONNRESET));  // a reset is reported once, before the data
  if (length < 0) throw SystemError("cannot receive from another rank's socket", errno);
  if (length == 0) return Received::CLOSED;
  take_fds(header, message);
  if ((header.msg_flags & MSG_CTRUNC) != 0) {
    throw SystemError(str("cannot take the descriptors that another rank sent: this process may have ",
                          open_files().soft, " files open (ulimit -n)"),
                      EMFILE);
  }
  message.text.resize(static_cast<std::size_t>(length));
  return Received::MESSAGE;
}

std::optional<std::size_t> wait_readable(const std::vector<int>& sockets, Deadline deadline) {
  std::vector<pollfd> entries;
  for (const int socket : sockets) entries.push_back({socket, POLLIN, 0});
  while (true) {
    int ready = 0;
    {
      const Nap nap(deadline.nap());
      ready = poll(entries.data(), entries.size(), poll_milliseconds(deadline));
    }
    if (ready < 0 && errno != EINTR) throw SystemError("cannot poll the sockets of other ranks", errno);
    for (std::size_t i = 0; ready > 0 && i < entries.size(); ++i) {
      if (entries[i].fd >= 0 && entries[i].revents != 0) return i;
    }
    if (deadline.expired()) return std::nullopt;
  }
}

pid_t peer_pid(int socket) {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 ? peer.pid : 0;
}

bool is_packet_socket(int fd) {
  int type = 0;
  socklen_t size = sizeof(type);
  return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_SEQPACKET;
}

void set_close_on_exec(int fd) { fcntl(fd, F_SETFD, FD_CLOEXEC); }

Fd duplicate(int fd) {
  Fd copy(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy.valid()) throw SystemError("cannot duplicate a descriptor", errno);
  return copy;
}

// The socket gets its final name only once it listens. So a process that finds the name taken can test by
// connecting whether a listener is alive.
Fd listen_at(const std::string& path) {
  constexpr std::size_t UNIQUE = 4;
  address_of(path);
  const std::string first_name = str(path, '.', random_hex(UNIQUE));
  const sockaddr_un address = address_of(first_name);
  Fd socket = new_socket();
  if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
    throw SystemError("cannot bind " + printable(path), errno);
  const bool listens = listen(socket.get(), SOMAXCONN) == 0;
  int error = listens && link(first_name.c_str(), path.c_str()) == 0 ? 0 : errno;
  const bool is_taken = listens && error == EEXIST;
  if (is_taken && !connect_to(path)) {
    unlink(path.c_str());  // left by a job that was killed; no other user can enter the folder
    error = link(first_name.c_str(), path.c_str()) == 0 ? 0 : errno;
  }
  unlink(first_name.c_str());
  if (error == EEXIST)
    throw SystemError(printable(path) + " is in use by another job with the same name", EADDRINUSE);
  if (error != 0) throw SystemError("cannot listen at " + printable(path), error);
  return socket;
}

void remove_socket(const std::string& path) { unlink(path.c_str()); }

std::optional<Fd> connect_to(const std::string& path) {
  const sockaddr_un address = address_of(path);
  Fd socket = new_socket();
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    if (errno == ENOENT || errno == ECONNREFUSED || errno == EAGAIN || errno == EINTR) return std::nullopt;
    throw SystemError("cannot connect to " + printable(path), errno);
  }
  if (!same_user(socket.get()))
    throw SystemError(printable(path) + " belongs to another user; refused", EPERM);
  return socket;
}

Fd accept_from_same_user(int listener, Deadline deadline) {
  while (wait_readable({listener}, deadline)) {
    Fd socket(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    if (socket.valid() && same_user(socket.get())) return socket;
    if (!socket.valid() && (errno == EMFILE || errno == ENFILE || errno == ENOMEM))
      throw SystemError("cannot accept a connection of another rank", errno);
  }
  return Fd();
}

}  // namespace lockstep

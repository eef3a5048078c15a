#include "lockstep/os/tcp_socket.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/os/answer_within.h"
#include "lockstep/os/poll_set.h"

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds FIRST_PAUSE{5};
constexpr std::chrono::milliseconds LONGEST_PAUSE{200};
// An address that drops packets must not use up the whole deadline.
constexpr std::chrono::seconds ONE_ATTEMPT{10};

// Bytes that the kernel accepts before it can send them. Later data waits behind them: 1 ms at 1 Gbit/s.
constexpr int UNSENT = 128 << 10;

struct SocketAddress {
  sockaddr_storage bytes = {};
  socklen_t size = sizeof(sockaddr_storage);

  sockaddr* generic() { return reinterpret_cast<sockaddr*>(&bytes); }
  const sockaddr* generic() const { return reinterpret_cast<const sockaddr*>(&bytes); }
  int family() const { return bytes.ss_family; }
};

void set_option(int socket, int level, int name, int value) {
  if (setsockopt(socket, level, name, &value, sizeof(value)) != 0) {
    throw SystemError("cannot set an option of a TCP socket", errno);
  }
}

std::chrono::milliseconds probed(std::chrono::milliseconds silence) {
  return std::clamp(silence, std::chrono::milliseconds(1000), std::chrono::milliseconds(1000 * 32000));
}

void send_at_once(int socket) {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  // Failure is harmless: slow links only become slower.
  setsockopt(socket, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &UNSENT, sizeof(UNSENT));
}

Fd new_socket(int family) {
  Fd socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket.valid()) send_at_once(socket.get());
  return socket;
}

struct Resolved {
  std::vector<SocketAddress> addresses;
  int error = 0;  // of getaddrinfo
};

Resolved resolve(const std::string& host, int port, int flags) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | flags;
  addrinfo* list = nullptr;
  Resolved result;
  result.error =
      getaddrinfo(host.empty() ? nullptr : host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (result.error != 0) return result;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, &freeaddrinfo);
  for (const addrinfo* at = list; at != nullptr; at = at->ai_next) {
    SocketAddress address;
    std::memcpy(&address.bytes, at->ai_addr, at->ai_addrlen);
    address.size = at->ai_addrlen;
    result.addresses.push_back(address);
  }
  return result;
}

// Resolves a host name, maybe through a name server. An address in digits needs none.
Resolved look_up(const std::string& host, int port, Deadline deadline) {
  Resolved digits = resolve(host, port, AI_NUMERICHOST);
  if (digits.error != EAI_NONAME) return digits;
  auto found = answer_within<Resolved>(deadline, [host, port] { return resolve(host, port, 0); });
  if (!found) throw Timeout(str("no name server answered for \"", printable(host), "\" before the deadline"));
  return std::move(*found);
}

void check_resolved(const Resolved& found, const std::string& host) {
  if (found.error == 0 || found.error == EAI_AGAIN) return;
  throw InvalidArgument(str("cannot connect to \"", printable(host), "\": ", gai_strerror(found.error)));
}

TcpAddress readable(SocketAddress address) {
  if (address.family() == AF_INET6) {
    const auto* six = reinterpret_cast<const sockaddr_in6*>(&address.bytes);
    if (IN6_IS_ADDR_V4MAPPED(&six->sin6_addr)) {
      sockaddr_in four = {};
      four.sin_family = AF_INET;
      four.sin_port = six->sin6_port;
      std::memcpy(&four.sin_addr, &six->sin6_addr.s6_addr[12], sizeof(four.sin_addr));
      std::memcpy(&address.bytes, &four, sizeof(four));
      address.size = sizeof(four);
    }
  }
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  if (getnameinfo(address.generic(), address.size, host.data(), host.size(), port.data(), port.size(),
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return {};
  }
  return {host.data(), std::atoi(port.data())};  // NOLINT(cert-err34-c): digits, says NI_NUMERICSERV
}

bool passes_with_time(int error) {
  constexpr std::array PASSING = {ECONNREFUSED, ETIMEDOUT, EHOSTUNREACH, ENETUNREACH, ECONNRESET,
                                  ECONNABORTED, EAGAIN,    ENETDOWN,     EHOSTDOWN,   EADDRNOTAVAIL};
  return std::find(PASSING.begin(), PASSING.end(), error) != PASSING.end();
}

// A port without a listener may be assigned to the very socket that connects to it. The socket is then
// connected to itself.
bool is_own_echo(int socket) {
  const TcpAddress here = tcp_local_address(socket);
  const TcpAddress there = tcp_peer_address(socket);
  return here.port == there.port && here.host == there.host;
}

// Returns 0 and a connected socket, or the errno value of the failure.
int try_connect(const SocketAddress& address, Deadline deadline, Fd& connected) {
  Fd socket = new_socket(address.family());
  if (!socket.valid()) return errno;
  if (connect(socket.get(), address.generic(), address.size) != 0) {
    if (errno != EINPROGRESS && errno != EINTR) return errno;
    const Deadline attempt =
        Deadline::in(std::min<std::chrono::nanoseconds>(deadline.remaining(), ONE_ATTEMPT));
    for (;;) {
      PollSet wait;
      wait.want_write(socket.get());
      wait.run(attempt);
      if (wait.is_ready(socket.get())) break;
      if (attempt.expired()) return ETIMEDOUT;
    }
    int error = 0;
    socklen_t size = sizeof(error);
    getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return error;
  }
  if (is_own_echo(socket.get())) return ECONNREFUSED;
  connected = std::move(socket);
  return 0;
}

bool wait_for(int socket, bool to_write, Deadline deadline) {
  PollSet wait;
  if (to_write) {
    wait.want_write(socket);
  } else {
    wait.want_read(socket);
  }
  wait.run(deadline);
  return wait.is_ready(socket);
}

[[noreturn]] void throw_transfer_timeout(int socket, const char* what, std::size_t missing) {
  throw Timeout(str("TCP connection to ", text(tcp_peer_address(socket)), ": ", missing, " bytes were not ",
                    what, " before the deadline"));
}

}  // namespace

std::string text(const TcpAddress& address) {
  const bool six = address.host.find(':') != std::string::npos;
  return six ? str('[', address.host, "]:", address.port) : str(address.host, ':', address.port);
}

std::string without_brackets(const std::string& host) {
  const bool has_them = host.size() > 2 && host.starts_with('[') && host.ends_with(']');
  return has_them ? host.substr(1, host.size() - 2) : host;
}

bool is_loopback(const std::string& host) {
  if (host == "localhost") return true;
  const Resolved found = host.empty() ? Resolved{} : resolve(host, 0, AI_NUMERICHOST);
  if (found.addresses.empty()) return false;
  const std::string digits = readable(found.addresses[0]).host;
  return digits.starts_with("127.") || digits == "::1";
}

Fd tcp_listen(const std::string& address, int port) {
  const std::string place = text({address.empty() ? "*" : printable(address), port});
  Resolved found = resolve(address, port, AI_PASSIVE);
  if (found.error != 0) {
    throw InvalidArgument(str("cannot listen at ", place, ": ", gai_strerror(found.error)));
  }
  // An IPv6 socket serves IPv4 too, so it is tried first if every address is meant.
  std::stable_sort(found.addresses.begin(), found.addresses.end(), [](const auto& a, const auto& b) {
    return a.family() == AF_INET6 && b.family() != AF_INET6;
  });
  int error = EADDRNOTAVAIL;
  for (const SocketAddress& candidate : found.addresses) {
    Fd socket = new_socket(candidate.family());
    if (socket.valid()) {
      set_option(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
      if (candidate.family() == AF_INET6)
        set_option(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, address.empty() ? 0 : 1);
      if (bind(socket.get(), candidate.generic(), candidate.size) == 0 &&
          listen(socket.get(), SOMAXCONN) == 0) {
        return socket;
      }
    }
    error = errno;
    if (error == EADDRINUSE)
      break;  // the IPv4 port may be free, but a listener for one family only would hide the error
  }
  throw SystemError("cannot listen at " + place, error);
}

void tcp_check_host(const std::string& host, Deadline deadline) {
  check_resolved(look_up(host, 0, deadline), host);
}

std::string address_to_listen_at(const std::string& host) {
  return resolve(host, 0, AI_NUMERICHOST).addresses.empty() ? "" : host;
}

// One lasting error does not end the attempts as long as another address may still answer.
Fd tcp_connect(const std::string& host, int port, Deadline deadline, IfRefused refused) {
  const std::string place = text({printable(host), port});
  for (std::chrono::milliseconds pause = FIRST_PAUSE;; pause = std::min(2 * pause, LONGEST_PAUSE)) {
    const Resolved found = look_up(host, port, deadline);
    std::string reason = found.error == 0 ? "it has no address" : gai_strerror(found.error);
    check_resolved(found, host);
    int lasting = 0;
    bool may_pass = found.addresses.empty();
    for (const SocketAddress& address : found.addresses) {
      Fd socket;
      const int error = try_connect(address, deadline, socket);
      if (error == 0) return socket;
      reason = std::strerror(error);  // NOLINT(concurrency-mt-unsafe): glibc's is safe for known numbers
      const bool passes = passes_with_time(error) && !(error == ECONNREFUSED && refused == IfRefused::FAIL);
      may_pass = may_pass || passes;
      if (!passes) lasting = error;
    }
    if (!may_pass) throw SystemError("cannot connect to " + place, lasting);
    if (deadline.remaining() <= pause) {
      throw Timeout(str("cannot connect to ", place, " before the deadline: ", reason));
    }
    nap(pause);
  }
}

TcpAccepted tcp_accept(int listener) {
  TcpAccepted result;
  result.socket.reset(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (result.socket.valid()) {
    send_at_once(result.socket.get());
  } else {
    result.out_of_descriptors = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
  }
  return result;
}

long tcp_read(int socket, std::span<std::byte> bytes) {
  if (bytes.empty()) return 0;
  const ssize_t got = recv(socket, bytes.data(), bytes.size(), 0);
  if (got > 0) return got;
  return got < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
}

long tcp_write(int socket, std::span<const std::byte> bytes) {
  if (bytes.empty()) return 0;
  const ssize_t put = send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (put >= 0) return put;
  return errno == EAGAIN || errno == EINTR || errno == ENOBUFS ? 0 : -1;
}

bool tcp_read_all(int socket, std::span<std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const long got = tcp_read(socket, bytes);
    if (got < 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(got));
    if (got == 0 && !wait_for(socket, false, deadline) && deadline.expired()) {
      throw_transfer_timeout(socket, "received", bytes.size());
    }
  }
  return true;
}

bool tcp_write_all(int socket, std::span<const std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const long put = tcp_write(socket, bytes);
    if (put < 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(put));
    if (put == 0 && !wait_for(socket, true, deadline) && deadline.expired()) {
      throw_transfer_timeout(socket, "taken", bytes.size());
    }
  }
  return true;
}

void tcp_set_probes(int socket, std::chrono::milliseconds silence) {
  constexpr int PROBES = 3;
  const auto span = std::chrono::floor<std::chrono::seconds>(probed(silence));
  const int interval = std::max(1, static_cast<int>(span.count()) / (PROBES + 1));
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, interval);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, interval);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, PROBES);
}

void tcp_set_liveness(int socket, std::chrono::milliseconds silence) {
  tcp_set_probes(socket, silence);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(probed(silence).count()));
}

std::chrono::milliseconds tcp_unanswered_for(int socket) {
  constexpr std::chrono::milliseconds MARGIN{500};
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 || info.tcpi_unacked == 0)
    return std::chrono::milliseconds(0);
  // Retransmissions come in ever longer intervals, and the machine only answers to these.
  const std::chrono::milliseconds silence(info.tcpi_last_ack_recv);
  const auto pause = std::chrono::ceil<std::chrono::milliseconds>(std::chrono::microseconds(info.tcpi_rto));
  return silence > pause + MARGIN ? silence : std::chrono::milliseconds(0);
}

std::string tcp_error(int socket) {
  int error = 0;
  socklen_t size = sizeof(error);
  if (getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error == 0) return {};
  return std::strerror(error);  // NOLINT(concurrency-mt-unsafe): glibc's is safe for known numbers
}

TcpAddress tcp_local_address(int socket) {
  SocketAddress address;
  if (getsockname(socket, address.generic(), &address.size) != 0) return {};
  return readable(address);
}

TcpAddress tcp_peer_address(int socket) {
  SocketAddress address;
  if (getpeername(socket, address.generic(), &address.size) != 0) return {};
  return readable(address);
}

// connect() on a datagram socket sends nothing: the kernel only chooses the route.
std::string address_towards(const std::string& host, Deadline deadline) {
  constexpr int ANY_PORT = 9;
  for (const SocketAddress& address : look_up(host, ANY_PORT, deadline).addresses) {
    const Fd socket(::socket(address.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (socket.valid() && connect(socket.get(), address.generic(), address.size) == 0)
      return tcp_local_address(socket.get()).host;
  }
  return {};
}

std::string interface_address(const std::string& name) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) throw SystemError("cannot list the network interfaces", errno);
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  std::string names;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
      if (at->ifa_addr == nullptr || at->ifa_addr->sa_family != family || (at->ifa_flags & IFF_UP) == 0)
        continue;
      SocketAddress address;
      address.size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
      std::memcpy(&address.bytes, at->ifa_addr, address.size);
      const std::string digits = readable(address).host;
      if (name == at->ifa_name) return digits;
      names += str(names.empty() ? "" : ", ", at->ifa_name, " (", digits, ")");
    }
  }
  throw InvalidArgument(
      str("there is no network interface \"", printable(name), "\" with an address; there are ", names));
}

}  // namespace lockstep

// Whether several TCP connections between two processes carry more than one, each process having one thread for them all: two
// exchange 25 MiB in both directions at once, as two ranks do in an all_reduce, cut into equal parts over 1, 2 or 4 connections.
//
//   build/bench/connections                                   # over loopback
//   build/bench/connections listen 10.90.0.1 4000             # on two hosts
//   build/bench/connections connect 10.90.0.1 4000
//
// One JSON object per number of connections: milliseconds of an exchange, the median of 30, in turn so that a slow moment hits all.
// Expected before the first measurement: no difference over loopback, where copying in and out of the kernel takes the one core
// of each process; none on a link that is slower than a core copies. (Where one core is too slow for the link it is several
// processes that help, and hierarchical has a connection for every rank of a node.)
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <system_error>
#include <vector>

namespace {

constexpr std::size_t BYTES = std::size_t{25} << 20U;
constexpr int ROUNDS = 30;
constexpr std::array<std::size_t, 3> NUMBERS = {1, 2, 4};

template <typename T> T check(T result, const char* what) {
  if (result < 0) throw std::system_error(errno, std::generic_category(), what);
  return result;
}

sockaddr_in address_of(const char* host, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  if (inet_pton(AF_INET, host, &address.sin_addr) != 1) throw std::invalid_argument(host);
  return address;
}

int listen_at(const char* host, int& port) {
  const int fd = check(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address = address_of(host, port);
  check(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), "bind");
  check(listen(fd, 8), "listen");
  socklen_t length = sizeof address;
  check(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length), "getsockname");
  port = ntohs(address.sin_port);
  return fd;
}

int connect_to(const char* host, int port) {
  const int fd = check(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
  sockaddr_in address = address_of(host, port);
  check(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), "connect");
  return fd;
}

// One direction of one connection.
struct Stream {
  int fd;
  char* data;
  std::size_t left;
  bool sends;

  void move() {
    constexpr std::size_t PIECE = std::size_t{256} << 10U;
    while (left > 0) {
      const std::size_t bytes = std::min(left, PIECE);
      const ssize_t moved =
          sends ? send(fd, data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL) : recv(fd, data, bytes, MSG_DONTWAIT);
      if (moved < 0 && errno == EAGAIN) return;
      if (check(moved, sends ? "send" : "recv") == 0) throw std::runtime_error("the other process is gone");
      data += moved;
      left -= static_cast<std::size_t>(moved);
    }
  }
};

void exchange(const std::vector<int>& fds, std::size_t number, std::vector<char>& out,
              std::vector<char>& in) {
  std::vector<Stream> streams;
  for (std::size_t i = 0; i < number; ++i) {
    const std::size_t part = BYTES / number;
    streams.push_back({fds[i], in.data() + i * part, part, false});
    streams.push_back({fds[i], out.data() + i * part, part, true});
  }
  while (!streams.empty()) {
    std::vector<pollfd> polled;
    for (const Stream& stream : streams)
      polled.push_back({stream.fd, static_cast<short>(stream.sends ? POLLOUT : POLLIN), 0});
    check(poll(polled.data(), polled.size(), -1), "poll");
    for (std::size_t i = 0; i < polled.size(); ++i) {
      if (polled[i].revents != 0) streams[i].move();
    }
    std::erase_if(streams, [](const Stream& stream) { return stream.left == 0; });
  }
}

// The median of each number of connections, in milliseconds.
std::map<std::size_t, double> measure(const std::vector<int>& fds) {
  const int on = 1;
  for (const int fd : fds) check(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), "TCP_NODELAY");
  std::vector<char> out(BYTES, 1);
  std::vector<char> in(BYTES);
  std::map<std::size_t, std::vector<double>> times;
  for (int round = 0; round < ROUNDS; ++round) {
    for (const std::size_t number : NUMBERS) {
      const auto begin = std::chrono::steady_clock::now();
      exchange(fds, number, out, in);
      times[number].push_back(
          std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
    }
  }
  std::map<std::size_t, double> medians;
  for (auto& [number, all] : times) {
    std::nth_element(all.begin(), all.begin() + ROUNDS / 2, all.end());
    medians[number] = all[ROUNDS / 2];
  }
  return medians;
}

void accept_and_measure(int listener) {
  std::vector<int> fds;
  while (fds.size() < NUMBERS.back())
    fds.push_back(check(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC), "accept"));
  for (const auto& [number, time] : measure(fds))
    std::printf("{\"connections\": %zu, \"ms\": %.2f}\n", number, time);
}

void connect_and_measure(const char* host, int port) {
  std::vector<int> fds;
  while (fds.size() < NUMBERS.back()) fds.push_back(connect_to(host, port));
  measure(fds);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::string role = argc == 4 ? argv[1] : "";
    if (argc != 1 && role != "listen" && role != "connect") return 64;
    const char* const host = argc == 4 ? argv[2] : "127.0.0.1";
    int port = argc == 4 ? std::atoi(argv[3]) : 0;
    if (role == "connect") {
      connect_and_measure(host, port);
      return 0;
    }
    const int listener = listen_at(host, port);
    const pid_t other = role.empty() ? check(fork(), "fork") : -1;
    if (other == 0) {
      connect_and_measure(host, port);
      return 0;
    }
    accept_and_measure(listener);
    if (other > 0) waitpid(other, nullptr, 0);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

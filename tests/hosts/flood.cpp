// A stranger who does not know the job's secret, for strangers_test.py: connects to a port again and again,
// until its standard input ends or half a minute has passed, whichever comes first.
//
//   flood ADDRESS PORT connect        two threads connect and close as fast as they can
//   flood ADDRESS PORT reset          500 connections one after the other, each reset at once
//   flood ADDRESS PORT idle           1000 connections that stay and say nothing
//   flood ADDRESS PORT hello          two threads connect, say hello as the handshake wants it, and close
//                                     when they are answered
//
// Says "flooding" after the first connection, and how many there were at the end.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr std::chrono::seconds LONGEST{30};
constexpr std::chrono::milliseconds UNTIL_SOMEBODY_LISTENS{1};
constexpr int RESETS = 500;
constexpr int IDLE = 1000;

class Flood {
 public:
  Flood(const char* address, int port) {
    target_.sin_family = AF_INET;
    target_.sin_port = htons(static_cast<std::uint16_t>(port));
    inet_pton(AF_INET, address, &target_.sin_addr);
  }

  bool is_over() const { return over_ || std::chrono::steady_clock::now() > end_; }
  void stop() { over_ = true; }
  long count() const { return count_; }

  // A connected socket, or -1.
  int connect_once() {
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (socket < 0) return -1;
    const timeval second = {1, 0};
    setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &second, sizeof second);
    setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof second);
    if (connect(socket, reinterpret_cast<const sockaddr*>(&target_), sizeof target_) != 0) {
      close(socket);
      std::this_thread::sleep_for(UNTIL_SOMEBODY_LISTENS);
      return -1;
    }
    if (count_++ == 0) std::puts("flooding");
    return socket;
  }

  static void reset(int socket) {
    const linger now = {1, 0};
    setsockopt(socket, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(socket);
  }

  // Closed by a reset, so that the stranger's own machine does not run out of ports.
  void connect_for_ever(bool says_hello) {
    std::string hello = std::string("LOCKSTEP\1\1\0\0", 12) + std::string(96, 'x');
    while (!is_over()) {
      const int socket = connect_once();
      if (socket < 0) continue;
      if (says_hello && send(socket, hello.data(), hello.size(), MSG_NOSIGNAL) > 0) [[maybe_unused]]
        const auto got = recv(socket, hello.data(), 1, MSG_PEEK);
      reset(socket);
    }
  }

 private:
  sockaddr_in target_ = {};
  const std::chrono::steady_clock::time_point end_ = std::chrono::steady_clock::now() + LONGEST;
  std::atomic<bool> over_ = false;
  std::atomic<long> count_ = 0;
};

void wait_for_end_of_input() {
  pollfd input = {STDIN_FILENO, POLLIN, 0};
  poll(&input, 1, static_cast<int>(std::chrono::milliseconds(LONGEST).count()));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 64;
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  Flood flood(argv[1], std::atoi(argv[2]));
  const std::string way = argv[3];
  std::vector<std::thread> threads;
  if (way == "connect" || way == "hello") {
    for (int i = 0; i < 2; ++i) threads.emplace_back([&] { flood.connect_for_ever(way == "hello"); });
  } else {
    threads.emplace_back([&] {
      for (int left = way == "reset" ? RESETS : IDLE; left > 0 && !flood.is_over();) {
        const int socket = flood.connect_once();
        if (socket < 0) continue;
        --left;
        if (way == "reset") Flood::reset(socket);
      }
    });
  }
  wait_for_end_of_input();
  flood.stop();
  for (std::thread& thread : threads) thread.join();
  std::printf("%ld connections\n", flood.count());
  return 0;
}

#include "lockstep/os/tcp_socket.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/os/machine.h"
#include "lockstep/os/poll_set.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr std::chrono::seconds SOON{20};

int option(int socket, int level, int name) {
  int value = -1;
  socklen_t size = sizeof(value);
  getsockopt(socket, level, name, &value, &size);
  return value;
}

Fd accept_one(int listener) {
  const Deadline deadline = Deadline::in(SOON);
  for (;;) {
    TcpAccepted accepted = tcp_accept(listener);
    if (accepted.socket.valid()) return std::move(accepted.socket);
    PollSet wait;
    wait.want_read(listener);
    wait.run(deadline);
    if (deadline.expired()) return {};
  }
}

struct Pair {
  Fd client;
  Fd server;
};

Pair connected(const std::string& host) {
  const Fd listener = tcp_listen(host, 0);
  Pair pair;
  pair.client = tcp_connect(host, tcp_local_address(listener.get()).port, Deadline::in(SOON));
  pair.server = accept_one(listener.get());
  return pair;
}

class TcpSocket : public ::testing::TestWithParam<std::string> {};

TEST_P(TcpSocket, ConnectsAndKnowsBothEnds) {
  const Pair pair = connected(GetParam());
  const TcpAddress here = tcp_local_address(pair.client.get());
  EXPECT_EQ(here.host, GetParam());
  EXPECT_EQ(text(here), text(tcp_peer_address(pair.server.get())));
  EXPECT_EQ(text(tcp_local_address(pair.server.get())), text(tcp_peer_address(pair.client.get())));
}

TEST_P(TcpSocket, IsCloseOnExecNonBlockingAndSendsAtOnce) {
  const Fd listener = tcp_listen(GetParam(), 0);
  EXPECT_TRUE(fcntl(listener.get(), F_GETFD) & FD_CLOEXEC);
  const Pair pair = connected(GetParam());
  for (const int socket : {pair.client.get(), pair.server.get()}) {
    EXPECT_TRUE(fcntl(socket, F_GETFD) & FD_CLOEXEC);
    EXPECT_TRUE(fcntl(socket, F_GETFL) & O_NONBLOCK);
    EXPECT_NE(option(socket, IPPROTO_TCP, TCP_NODELAY), 0);
    EXPECT_EQ(option(socket, IPPROTO_TCP, TCP_NOTSENT_LOWAT), 128 << 10);
  }
}

TEST_P(TcpSocket, CarriesMoreThanItsBuffersHold) {
  const Pair pair = connected(GetParam());
  std::vector<std::byte> sent(8U << 20U);
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<std::byte>(i * 7 + i / 251);
  std::vector<std::byte> received(sent.size());
  std::thread writer([&] { EXPECT_TRUE(tcp_write_all(pair.client.get(), sent, Deadline::in(SOON))); });
  EXPECT_TRUE(tcp_read_all(pair.server.get(), received, Deadline::in(SOON)));
  writer.join();
  EXPECT_EQ(sent, received);
}

TEST_P(TcpSocket, TellsTheEndFromNothingNow) {
  Pair pair = connected(GetParam());
  std::array<std::byte, 4> bytes{};
  EXPECT_EQ(tcp_read(pair.server.get(), bytes), 0);
  pair.client.reset();
  EXPECT_FALSE(tcp_read_all(pair.server.get(), bytes, Deadline::in(SOON)));
  EXPECT_EQ(tcp_read(pair.server.get(), bytes), -1);
}

TEST_P(TcpSocket, NobodyListeningIsATimeoutThatSaysWhereAndWhy) {
  try {
    tcp_connect(GetParam(), free_port(), Deadline::in(30ms));
    FAIL() << "connected";
  } catch (const Timeout& error) {
    EXPECT_THAT(error.what(), HasSubstr(GetParam()));
    EXPECT_THAT(error.what(), HasSubstr("refused"));
  }
}

bool has_ipv6() {
  try {
    return tcp_listen("::1", 0).valid();
  } catch (const Error&) {
    return false;
  }
}

std::vector<std::string> hosts() {
  if (has_ipv6()) return {"127.0.0.1", "::1"};
  std::puts("no IPv6 here: tested over IPv4 only");
  return {"127.0.0.1"};
}

INSTANTIATE_TEST_SUITE_P(, TcpSocket, ::testing::ValuesIn(hosts()),
                         [](const auto& parameter) { return parameter.index == 0 ? "IPv4" : "IPv6"; });

TEST(TcpSocketAddress, EveryAddressServesIPv4UnderItsOwnName) {
  const Fd listener = tcp_listen("", 0);
  const Fd client = tcp_connect("127.0.0.1", tcp_local_address(listener.get()).port, Deadline::in(SOON));
  const Fd server = accept_one(listener.get());
  EXPECT_EQ(tcp_peer_address(server.get()).host, "127.0.0.1");
}

TEST(TcpSocketAddress, TextPutsIPv6InBrackets) {
  EXPECT_EQ(text({"10.0.0.1", 80}), "10.0.0.1:80");
  EXPECT_EQ(text({"::1", 80}), "[::1]:80");
}

TEST(TcpSocketAddress, LoopbackIsToldByTheAddress) {
  for (const char* host : {"127.0.0.1", "127.0.0.3", "::1", "localhost", "::ffff:127.0.0.1"}) {
    EXPECT_TRUE(is_loopback(host)) << host;
  }
  for (const char* host : {"10.0.0.1", "fe80::1", "", "example.org", "127.0.0.1.example.org"}) {
    EXPECT_FALSE(is_loopback(host)) << host;
  }
}

TEST(TcpSocketAddress, InterfacesHaveAddresses) {
  EXPECT_EQ(interface_address("lo"), "127.0.0.1");
  try {
    interface_address("nosuch0");
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("lo (127.0.0.1)"));
  }
}

TEST(TcpSocketConnect, WhoHasEndedIsNotWaitedFor) {
  int port = 0;
  {
    const Fd listener = tcp_listen("127.0.0.1", 0);
    port = tcp_local_address(listener.get()).port;
  }
  try {
    tcp_connect("127.0.0.1", port, Deadline::never(), IfRefused::FAIL);
    FAIL();
  } catch (const SystemError& error) {
    EXPECT_EQ(error.error_number(), ECONNREFUSED);
  }
}

TEST(TcpSocketListen, AUsedPortIsRefusedByName) {
  const Fd first = tcp_listen("127.0.0.1", 0);
  const int port = tcp_local_address(first.get()).port;
  try {
    tcp_listen("127.0.0.1", port);
    FAIL();
  } catch (const SystemError& error) {
    EXPECT_EQ(error.error_number(), EADDRINUSE);
    EXPECT_THAT(error.what(), HasSubstr(std::to_string(port)));
  }
}

TEST(TcpSocketListen, AForeignAddressIsRefused) {
  EXPECT_THROW(tcp_listen("203.0.113.7", 0), SystemError);
  EXPECT_THROW(tcp_listen("not an address", 0), InvalidArgument);
}

TEST(TcpSocketConnect, WaitsForAServerThatStartsLater) {
  const int port = free_port();
  Fd client;
  std::thread connecting([&] { client = tcp_connect("127.0.0.1", port, Deadline::in(SOON)); });
  const Fd listener = tcp_listen("127.0.0.1", port);
  const Fd server = accept_one(listener.get());
  connecting.join();
  EXPECT_EQ(text(tcp_peer_address(server.get())), text(tcp_local_address(client.get())));
}

// A port without a listener, from the half of the ports (even, from 32768 on) that the kernel assigns to
// connecting sockets.
int port_for_connecting() {
  for (;;) {
    const int port = free_port() & ~1;
    try {
      tcp_listen("127.0.0.1", port);
      return port;
    } catch (const SystemError&) {
      continue;
    }
  }
}

// The kernel assigns one port after the other to the connecting sockets. Sooner or later one of them gets the
// very port that it connects to, and is then connected to itself. At an address of this test's own, where no
// other test listens meanwhile.
TEST(TcpSocketConnect, NeverTalksToItself) {
  constexpr int ALL_PORTS = 15'000;
  for (int round = 0; round < 4; ++round) {
    const int port = port_for_connecting();
    for (int i = 0; i < ALL_PORTS; ++i) {
      ASSERT_THROW(tcp_connect("127.0.53.7", port, Deadline::in(0ms)), Timeout) << "attempt " << i;
    }
  }
}

TEST(TcpSocketConnect, AReadThatDoesNotEndIsATimeoutWithTheCount) {
  const Pair pair = connected("127.0.0.1");
  std::array<std::byte, 12> bytes{};
  tcp_write(pair.client.get(), std::span(bytes).first(5));
  try {
    tcp_read_all(pair.server.get(), bytes, Deadline::in(100ms));
    FAIL();
  } catch (const Timeout& error) {
    EXPECT_THAT(error.what(), HasSubstr("7 bytes"));
  }
}

TEST(TcpSocketLiveness, SetsProbesAndTheTimeOfUnansweredData) {
  const Pair pair = connected("127.0.0.1");
  tcp_set_liveness(pair.client.get(), 8s);
  EXPECT_NE(option(pair.client.get(), SOL_SOCKET, SO_KEEPALIVE), 0);
  EXPECT_EQ(option(pair.client.get(), IPPROTO_TCP, TCP_USER_TIMEOUT), 8000);
  const int silence = option(pair.client.get(), IPPROTO_TCP, TCP_KEEPIDLE) +
                      option(pair.client.get(), IPPROTO_TCP, TCP_KEEPINTVL) *
                          option(pair.client.get(), IPPROTO_TCP, TCP_KEEPCNT);
  EXPECT_EQ(silence, 8);
}

TEST(TcpSocketLiveness, ProbesAloneLeaveUnansweredDataAlone) {
  const Pair pair = connected("127.0.0.1");
  tcp_set_probes(pair.client.get(), 8s);
  EXPECT_NE(option(pair.client.get(), SOL_SOCKET, SO_KEEPALIVE), 0);
  EXPECT_EQ(option(pair.client.get(), IPPROTO_TCP, TCP_KEEPIDLE), 2);
  EXPECT_EQ(option(pair.client.get(), IPPROTO_TCP, TCP_USER_TIMEOUT), 0);
}

// A process that does not read lets its buffers fill, but its machine still acknowledges. tests/hosts covers
// a machine that does not.
TEST(TcpSocketLiveness, AMachineAnswersForAProcessThatDoesNotRead) {
  const Pair pair = connected("127.0.0.1");
  const std::vector<std::byte> bytes(std::size_t{1} << 20U);
  EXPECT_EQ(tcp_unanswered_for(pair.client.get()), 0ms) << "nothing was sent";
  const Deadline full = Deadline::in(300ms);
  std::size_t written = 0;
  while (!full.expired())
    written += static_cast<std::size_t>(std::max(0L, tcp_write(pair.client.get(), bytes)));
  EXPECT_GT(written, 0U);
  EXPECT_LT(tcp_unanswered_for(pair.client.get()), 300ms);
}

TEST(TcpSocketLiveness, AResetConnectionIsOver) {
  Pair pair = connected("127.0.0.1");
  const linger at_once = {1, 0};
  ASSERT_EQ(setsockopt(pair.client.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)), 0);
  pair.client.reset();
  std::array<std::byte, 4> bytes{};
  EXPECT_FALSE(tcp_read_all(pair.server.get(), bytes, Deadline::in(SOON)));
}

}  // namespace
}  // namespace lockstep

// The streams of Gloo's module (gloo/module.h) against other processes that end too early.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "lockstep/comm/backends/gloo/library.h"
#include "lockstep/os/fd.h"

namespace lockstep::gloo {
namespace {

#ifdef LOCKSTEP_WITH_GLOO_MODULE

// Gloo's form of an address begins with the socket's.
sockaddr_in socket_address(std::span<const char> address) {
  sockaddr_in socket = {};
  std::memcpy(&socket, address.data(), sizeof socket);
  return socket;
}

// Gloo connects from the higher address to the lower one. So the process at this address listens.
std::vector<char> higher_than(std::span<const char> address) {
  sockaddr_in socket = socket_address(address);
  socket.sin_port = 0xFFFF;
  std::vector<char> higher(address.begin(), address.end());
  std::memcpy(higher.data(), &socket, sizeof socket);
  return higher;
}

// What the kernel does for a process that is killed between connect() and the other side's accept().
void connect_and_reset(std::span<const char> address) {
  const Fd connection(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in to = socket_address(address);
  const auto* const generic = reinterpret_cast<const sockaddr*>(&to);  // NOLINT: what sockets take
  ASSERT_EQ(connect(connection.get(), generic, sizeof to), 0) << std::strerror(errno);
  const linger reset = {.l_onoff = 1, .l_linger = 0};
  ASSERT_EQ(setsockopt(connection.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset), 0);
}

// Whether a connection is reset before it is accepted is up to the scheduler. Of sixty-three most are, since
// one thread accepts them all.
TEST(GlooStreams, AProcessThatEndsAsItConnectsBreaksItsOwnStreamOnly) {
  constexpr int SIZE = 64;
  Text error = {};
  const std::unique_ptr<Streams> streams(
      open_library().open({.rank = 0, .size = SIZE, .address = "127.0.0.1"}, error));
  ASSERT_NE(streams, nullptr) << error.data();
  for (int r = 1; r < SIZE; ++r) connect_and_reset(streams->address_for(r));
  for (int r = 1; r < SIZE; ++r) streams->connect(r, higher_than(streams->address_for(r)));

  std::set<int> broken;
  const TimePoint deadline = TimePoint::clock::now() + std::chrono::seconds(20);
  std::vector<Streams::Ready> ready(SIZE);
  while (broken.size() + 1 < SIZE && TimePoint::clock::now() < deadline) {
    const std::size_t count = streams->wait(ready, deadline);
    for (const auto& one : std::span(ready).first(count)) {
      std::byte nothing = {};
      const Streams::Moved moved = streams->receive(one.member, {&nothing, 1});
      ASSERT_NE(moved.broken, nullptr);
      EXPECT_TRUE(moved.by_peer) << moved.broken;
      broken.insert(one.member);
      streams->close(one.member);
    }
  }
  EXPECT_EQ(broken.size() + 1, std::size_t{SIZE});
}

#else
TEST(GlooStreams, AreNotHere) { EXPECT_EQ(find_library(), ""); }
#endif

}  // namespace
}  // namespace lockstep::gloo

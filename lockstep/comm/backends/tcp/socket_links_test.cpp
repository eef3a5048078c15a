// Links over one and several sockets: the bytes arrive whole and in order whatever the pieces, and go over
// the sockets in turn.
#include "lockstep/comm/backends/tcp/socket_links.h"

#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <random>

#include "lockstep/base/error.h"

namespace lockstep::tcp {
namespace {

using std::chrono_literals::operator""ms;

constexpr std::size_t STRIPE = SocketLinks::STRIPE;

std::byte at_place(std::size_t i) { return static_cast<std::byte>(i * 7 + i / 251 + i / STRIPE * 3); }

// Two sides, with so many sockets between them; peer 1 of each is the other.
struct Sides {
  explicit Sides(int sockets, std::chrono::milliseconds spin = 0ms) {
    std::vector<std::vector<Fd>> ends(2);
    for (int i = 0; i < sockets; ++i) {
      std::array<int, 2> pair = {};
      if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair.data()) != 0)
        throw SystemError("socketpair", errno);
      for (std::size_t side = 0; side < 2; ++side) {
        ends[side].emplace_back(pair.at(side));
        numbers[side].push_back(pair.at(side));
      }
    }
    for (auto& side : ends) {
      std::vector<std::vector<Fd>> by_rank(2);
      by_rank[1] = std::move(side);
      links.push_back(std::make_unique<SocketLinks>(std::move(by_rank), spin));
      link.push_back(links.back()->link_to(1));
    }
  }

  std::array<std::vector<int>, 2> numbers;
  std::vector<std::unique_ptr<SocketLinks>> links;
  std::vector<std::unique_ptr<messages::Link>> link;
};

// Everything from side 0 to side 1, sent and received in random pieces, as far as each comes.
std::vector<std::byte> carry(Sides& sides, const std::vector<std::byte>& bytes, std::mt19937& random) {
  std::vector<std::byte> arrived(bytes.size());
  std::size_t sent = 0;
  std::size_t received = 0;
  const auto piece = [&](std::size_t left) { return std::min<std::size_t>(left, 1 + random() % 200000); };
  while (received < bytes.size()) {
    const auto out = std::span(bytes).subspan(sent, piece(bytes.size() - sent));
    const std::size_t head = random() % (out.size() + 1);
    sent += sides.link[0]->send_some({out.first(head), out.subspan(head)}).bytes;
    const auto in = std::span(arrived).subspan(received, piece(bytes.size() - received));
    received += sides.link[1]->receive_some(in).bytes;
  }
  return arrived;
}

TEST(SocketLinks, BytesArriveInOrderWhateverThePieces) {
  for (const int sockets : {1, 2, 3, 16}) {
    for (unsigned seed = 0; seed < 3; ++seed) {
      std::mt19937 random(seed);
      Sides sides(sockets);
      std::vector<std::byte> bytes(20 * STRIPE + 12345);
      for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = at_place(i);
      EXPECT_TRUE(carry(sides, bytes, random) == bytes) << sockets << " sockets, seed " << seed;
    }
  }
}

TEST(SocketLinks, EachSocketCarriesItsStripes) {
  Sides sides(3);
  const std::vector<std::byte> bytes(2 * STRIPE + 100);
  for (std::size_t sent = 0; sent < bytes.size();) {
    const std::size_t now = sides.link[0]->send_some({std::span(bytes).subspan(sent), {}}).bytes;
    ASSERT_GT(now, 0U);
    sent += now;
  }
  const std::array<int, 3> expected = {STRIPE, STRIPE, 100};
  for (std::size_t i = 0; i < 3; ++i) {
    int waiting = 0;
    ASSERT_EQ(ioctl(sides.numbers[1][i], FIONREAD, &waiting), 0);
    EXPECT_EQ(waiting, expected.at(i)) << "socket " << i;
  }
}

// With a spin as long as this, whoever misses something waits for an hour.
TEST(SocketLinks, AnEagerWaitEndsAtOnceByWhatEndsAnyWait) {
  Sides sides(1, std::chrono::hours(1));
  EXPECT_TRUE(sides.links[1]->wait(Deadline::in(20ms), true).empty());
  sides.links[1]->wake();
  EXPECT_TRUE(sides.links[1]->wait(Deadline::never(), true).empty());
  const std::vector<std::byte> one(1);
  sides.link[0]->send_some({one, {}});
  EXPECT_EQ(sides.links[1]->wait(Deadline::never(), true).size(), 1U);
}

// What came over a socket whose turn it is not wakes nobody: it cannot be read yet.
TEST(SocketLinks, OnlyTheSocketWhoseTurnItIsIsWatched) {
  Sides sides(2);
  ASSERT_EQ(send(sides.numbers[0][1], "x", 1, 0), 1);
  EXPECT_TRUE(sides.links[1]->wait(Deadline::in(20ms)).empty());
  std::vector<std::byte> bytes(STRIPE);
  ASSERT_EQ(sides.link[0]->send_some({bytes, {}}).bytes, STRIPE);
  const auto ready = sides.links[1]->wait(Deadline::in(1000ms));
  ASSERT_EQ(ready.size(), 1U);
  EXPECT_EQ(ready[0].peer, 1);
  EXPECT_TRUE(ready[0].readable);
  EXPECT_FALSE(ready[0].writable);
  EXPECT_EQ(sides.link[1]->receive_some(bytes).bytes, STRIPE);
  EXPECT_EQ(sides.links[1]->wait(Deadline::in(1000ms)).size(), 1U) << "now it is the other one's turn";
}

TEST(SocketLinks, WritingIsWatchedWhereItIsWantedOnly) {
  Sides sides(2);
  std::vector<std::byte> bytes(STRIPE);
  ASSERT_EQ(sides.link[0]->send_some({bytes, {}}).bytes, STRIPE);
  EXPECT_TRUE(sides.links[0]->wait(Deadline::in(20ms)).empty());
  sides.link[0]->want_write(true);  // over the second socket, while the first is read from
  const auto ready = sides.links[0]->wait(Deadline::in(1000ms));
  ASSERT_EQ(ready.size(), 1U);
  EXPECT_TRUE(ready[0].writable);
  EXPECT_FALSE(ready[0].readable);
  sides.link[0]->want_write(false);
  EXPECT_TRUE(sides.links[0]->wait(Deadline::in(20ms)).empty());
}

TEST(SocketLinks, TheEndOfTheOtherSideIsSeen) {
  for (const int sockets : {1, 3}) {
    Sides sides(sockets);
    sides.link[0]->close();
    ASSERT_EQ(sides.links[1]->wait(Deadline::in(1000ms)).size(), 1U);
    std::vector<std::byte> bytes(10);
    EXPECT_TRUE(sides.link[1]->receive_some(bytes).has_ended());
    sides.link[1]->close();
    EXPECT_TRUE(sides.links[1]->wait(Deadline::in(20ms)).empty());
  }
}

}  // namespace
}  // namespace lockstep::tcp

// Several TCP connections between every two ranks, made while strangers connect, too; that the bits are right
// whatever goes over them is for socket_links_test.cpp.
#include <gmock/gmock.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <deque>
#include <numeric>
#include <span>
#include <sstream>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/backends/tcp/mesh.h"
#include "lockstep/comm/collectives/collectives.h"
#include "lockstep/comm/meeting/group_meeting.h"
#include "lockstep/job/groups.h"
#include "lockstep/os/poll_set.h"
#include "lockstep/os/process.h"
#include "lockstep/os/tcp_socket.h"
#include "lockstep/store/reception.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// As many as this process's descriptors that are TCP sockets with another end.
int connections() {
  int count = 0;
  for (int fd = 0; fd < 1024; ++fd) {
    sockaddr_storage address = {};
    socklen_t size = sizeof address;
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0 && address.ss_family == AF_INET)
      ++count;
  }
  return count;
}

// A sum of so many numbers, then an exchange in both directions at once, as large.
void check_traffic(const ProcessGroup& group, std::size_t count) {
  const auto ranks = static_cast<std::size_t>(group.size());
  std::vector<std::int64_t> sum(count);
  std::iota(sum.begin(), sum.end(), group.rank());
  comm::all_reduce(group, std::span(sum));
  for (std::size_t i = 0; i < count; ++i)
    ASSERT_EQ(sum[i], static_cast<std::int64_t>(ranks * i + ranks * (ranks - 1) / 2)) << count;
  std::vector<std::int64_t> mine(count * ranks, group.rank());
  std::vector<std::int64_t> all(count * ranks);
  comm::all_to_all(group, std::span<const std::int64_t>(mine), std::span(all));
  for (std::size_t i = 0; i < all.size(); ++i)
    ASSERT_EQ(all[i], static_cast<std::int64_t>(i / count)) << count;
}

// A meeting that knows where the ranks listen as soon as they know it, and from then on strangers connect
// there as fast as they can: some reset their connections, the others keep the last few hundred.
class FloodedMeeting final : public Meeting {
 public:
  explicit FloodedMeeting(Meeting& meeting) : meeting_(meeting) {}
  FloodedMeeting(const FloodedMeeting&) = delete;
  FloodedMeeting& operator=(const FloodedMeeting&) = delete;
  ~FloodedMeeting() override {
    is_over_ = true;
    for (std::thread& stranger : strangers_) stranger.join();
  }

  int rank() const override { return meeting_.rank(); }
  int size() const override { return meeting_.size(); }
  bool passes_descriptors() const override { return false; }
  std::string local_address() const override { return meeting_.local_address(); }
  std::optional<std::string> secret() const override { return meeting_.secret(); }
  std::vector<Message> exchange(const std::string& text, const std::vector<int>& fds,
                                Deadline deadline) override {
    std::vector<Message> all = meeting_.exchange(text, fds, deadline);
    if (!strangers_.empty()) return all;
    std::vector<TcpAddress> addresses;
    for (const Message& message : all) {
      std::istringstream words(message.text);
      long pid = 0;
      words >> pid >> addresses.emplace_back().host >> addresses.back().port;
    }
    for (const bool resets : {false, true})
      strangers_.emplace_back([this, addresses, resets] { flood(addresses, resets); });
    while (connected_ < ENOUGH) std::this_thread::yield();
    return all;
  }

 private:
  static constexpr int ENOUGH = 300;
  static constexpr std::size_t KEPT = 300;

  void flood(const std::vector<TcpAddress>& addresses, bool resets) {
    std::deque<Fd> kept;
    while (!is_over_) {
      for (const TcpAddress& address : addresses) {
        try {
          Fd socket =
              tcp_connect(address.host, address.port, Deadline::in(std::chrono::seconds(1)), IfRefused::FAIL);
          const linger at_once = {1, 0};
          setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
          if (!resets) kept.push_back(std::move(socket));
        } catch (const Error&) {  // nobody listens there any more
          is_over_ = true;
        }
        ++connected_;
        if (kept.size() > KEPT) kept.pop_front();
      }
    }
  }

  Meeting& meeting_;
  std::atomic<bool> is_over_ = false;
  std::atomic<int> connected_ = 0;
  std::vector<std::thread> strangers_;
};

RANKS_TEST(TcpMesh, StrangersKeepNoRankFromTheOthers, Ranks(2, 3), Backends("shm")) {
  for (int round = 0; round < 2; ++round) {
    GroupMeeting friends(world());
    FloodedMeeting meeting(friends);
    const auto mesh = tcp::connect_mesh(meeting, {.silence = std::chrono::seconds(30), .connections = 2},
                                        Deadline::in(std::chrono::seconds(60)));
    for (int r = 0; r < size(); ++r) {
      const auto& sockets = mesh.sockets.at(static_cast<std::size_t>(r));
      ASSERT_EQ(sockets.size(), r == rank() ? 0U : 2U);
      for (std::size_t i = 0; i < sockets.size(); ++i) {
        const std::array<std::byte, 2> mine = {std::byte(rank()), std::byte(i)};
        ASSERT_TRUE(tcp_write_all(sockets[i].get(), mine, Deadline::in(std::chrono::seconds(30))));
      }
      for (std::size_t i = 0; i < sockets.size(); ++i) {
        std::array<std::byte, 2> theirs{};
        ASSERT_TRUE(tcp_read_all(sockets[i].get(), theirs, Deadline::in(std::chrono::seconds(30))));
        EXPECT_EQ(theirs, (std::array<std::byte, 2>{std::byte(r), std::byte(i)}));
      }
    }
    comm::barrier(world());
  }
}

// Rank 0 lets rank 1 in and ends; rank 2 finds nobody there, gives up, and never comes to rank 1.
RANKS_TEST(TcpMesh, ARankThatEndedIsNamedAndNotOneThatGaveUpBecauseOfIt, Ranks(3), Backends("shm")) {
  GroupMeeting meeting(world());
  const Deadline deadline = Deadline::in(std::chrono::seconds(60));
  if (rank() > 0) {
    try {
      tcp::connect_mesh(meeting, {.silence = std::chrono::seconds(30)}, deadline);
      FAIL() << "rank 0 had ended";
    } catch (const PeerLost& lost) {
      EXPECT_EQ(lost.peer(), 0) << lost.what();
    }
    return;
  }
  const Secret secret = Secret::random();
  Fd listener = tcp_listen(meeting.local_address(), 0);
  meeting.exchange(str(current_pid(), ' ', meeting.local_address(), ' ',
                       tcp_local_address(listener.get()).port, " 1 ", secret.as_hex()),
                   {}, deadline);
  std::vector<Fd> welcomed;
  {
    Reception reception(std::move(listener), {secret, HandshakePurpose::GROUP, "rank 0"});
    while (welcomed.empty()) {
      PollSet wait;
      reception.add_to(wait);
      wait.run(reception.next_deadline());
      for (auto& one : reception.serve(wait)) {
        if (!opaque_text(one.hello.opaque).starts_with("tcp rank 1 "))
          continue;  // rank 2 is cut off, and tries again
        ASSERT_EQ(tcp_write(one.socket.get(), std::as_bytes(std::span("w", 1))), 1);
        welcomed.push_back(std::move(one.socket));
      }
    }
  }
  meeting.exchange("", {}, deadline);  // what it had said before it ended
}

RANKS_TEST(TcpMesh, SeveralConnections, Ranks(2, 3, 4), Backends("tcp", "hierarchical"),
           Variable("LOCKSTEP_TCP_CONNECTIONS", "3")) {
  for (const std::size_t count : {1UL, 1000UL, 8191UL, 8192UL, 8193UL, 300007UL})
    check_traffic(world(), count);
}

RANKS_TEST(TcpMesh, AsManyConnectionsAsRank0Says, Ranks(1, 2, 3), Backends("shm")) {
  setenv("LOCKSTEP_TCP_CONNECTIONS", rank() == 0 ? "4" : "2", 1);  // NOLINT(concurrency-mt-unsafe)
  const int before = connections();
  const ProcessGroup group = new_group({.backend = "tcp"});
  EXPECT_EQ(connections() - before, 4 * (size() - 1));
  check_traffic(group, 50000);
}

RANKS_TEST(TcpMesh, AnImpossibleNumberIsRefused, Ranks(1), Backends("shm")) {
  for (const char* const value : {"0", "17", "many"}) {
    setenv("LOCKSTEP_TCP_CONNECTIONS", value, 1);  // NOLINT(concurrency-mt-unsafe)
    EXPECT_THAT(
        [] { new_group({.backend = "tcp"}); },
        ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("LOCKSTEP_TCP_CONNECTIONS"), HasSubstr("16"))));
  }
}

RANKS_TEST(TcpMesh, ADeathIsSeenOverSeveralConnections, Ranks(2, 3), Backends("tcp"),
           Variable("LOCKSTEP_TCP_CONNECTIONS", "4"), Dies({1})) {
  std::vector<float> data(300007, 1);
  if (rank() == 1) {
    comm::all_reduce(world(), std::span(data));
    die();
  }
  EXPECT_THAT(
      [&] {
        while (true) comm::all_reduce(world(), std::span(data));
      },
      ThrowsMessage<PeerLost>(AllOf(HasSubstr("rank 1 (pid "), HasSubstr("is dead"))));
}

}  // namespace
}  // namespace lockstep

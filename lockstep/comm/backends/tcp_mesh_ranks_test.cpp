// Several TCP connections between every two ranks; that the bits are right whatever goes over them is for socket_links_test.cpp.
#include <gmock/gmock.h>
#include <sys/socket.h>

#include <cstdlib>
#include <numeric>
#include <span>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/comm/collectives.h"
#include "lockstep/job/groups.h"
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

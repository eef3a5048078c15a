// What is special about backend gloo; every other test over it is among those of all backends.
#include <gmock/gmock.h>

#include <csignal>
#include <numeric>
#include <span>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/comm/collectives/collectives.h"
#include "lockstep/job/groups.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

long sum_over(const ProcessGroup& group, long value) {
  comm::all_reduce(group, std::span(&value, 1));
  return value;
}

// Each has connections of its own: what closes one disturbs no other.
RANKS_TEST(Gloo, GroupsOfTheirOwnComeAndGoBesideTheWorld, Ranks(2, 3), Backends("gloo", "shm")) {
#ifdef LOCKSTEP_WITH_GLOO_MODULE
  const ProcessGroup stays = new_group({.backend = "gloo"});
  for (int round = 0; round < 5; ++round) {
    const ProcessGroup group = new_group({.backend = "gloo"});
    EXPECT_EQ(group.backend_name(), "gloo");
    EXPECT_EQ(sum_over(group, rank()), size() * (size() - 1) / 2);
    destroy_process_group(group);
    EXPECT_EQ(sum_over(stays, 1), size());
    EXPECT_EQ(sum_over(world(), 1), size());
  }
#else
  EXPECT_THAT([] { new_group({.backend = "gloo"}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("install libgloo-dev")));
#endif
}

// Many packets in both directions at once, more than there is room for, of sizes around a packet's.
RANKS_TEST(Gloo, BothDirectionsFull, Ranks(2, 3), Backends("gloo")) {
  constexpr std::size_t CHUNK = 256 << 10;
  for (const std::size_t bytes : {CHUNK - 1, CHUNK, CHUNK + 1, CHUNK + 64, 20 * CHUNK + 7}) {
    std::vector<std::uint8_t> mine(bytes * static_cast<std::size_t>(size()));
    std::iota(mine.begin(), mine.end(), static_cast<std::uint8_t>(rank()));
    std::vector<std::uint8_t> all(mine.size());
    comm::all_to_all(world(), std::span<const std::uint8_t>(mine), std::span(all));
    for (int r = 0; r < size(); ++r) {
      const auto part = std::span(all).subspan(static_cast<std::size_t>(r) * bytes, bytes);
      std::vector<std::uint8_t> expected(bytes);
      std::iota(
          expected.begin(), expected.end(),
          static_cast<std::uint8_t>(static_cast<std::size_t>(rank()) * bytes + static_cast<std::size_t>(r)));
      EXPECT_TRUE(std::equal(part.begin(), part.end(), expected.begin())) << bytes << " bytes from " << r;
    }
  }
}

// Gloo writes to a connection that is gone, which raises SIGPIPE; the process neither dies of it nor is left
// with one.
RANKS_TEST(Gloo, ADeadPeerRaisesNoSignal, Ranks(2, 3), Backends("gloo"), Dies({1})) {
  std::vector<float> data(100000, 1);
  comm::all_reduce(world(), std::span(data));
  const std::vector<int> mine(1);
  std::vector<int> theirs(1);  // all have the sum before rank 1 dies
  for (int r = 0; r < size() && rank() == 1; ++r) {
    if (r != 1) comm::recv(world(), std::span(theirs), r);
  }
  if (rank() == 1) die();
  comm::send(world(), std::span<const int>(mine), 1);
  EXPECT_THAT(
      [&] {
        while (true) comm::send(world(), std::span<const float>(data).first(100), 1);
      },
      ThrowsMessage<PeerLost>(AllOf(HasSubstr("rank 1 (pid "), HasSubstr("is dead"))));
  sigset_t pending;
  sigpending(&pending);
  EXPECT_EQ(sigismember(&pending, SIGPIPE), 0);
}

}  // namespace
}  // namespace lockstep

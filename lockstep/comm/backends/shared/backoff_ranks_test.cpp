#include "lockstep/comm/backends/shared/backoff.h"

#include <gmock/gmock.h>
#include <sched.h>

#include <ctime>
#include <thread>

#include "lockstep/comm/collectives/collectives.h"
#include "lockstep/os/cpu_topology.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

void bind_to(int cpu) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  CPU_SET(static_cast<std::size_t>(cpu), &mask);
  ASSERT_EQ(sched_setaffinity(0, sizeof mask, &mask), 0);
}

int cpus_now() { return shared::cpus_of_ranks.load(std::memory_order_relaxed); }

// The cgroup's quota, if any, counts as well: the tests for it are in os/.
int within_quota(int cpus) {
  return std::max(1, std::min(cpus, static_cast<int>(cgroup_cpu_quota().value_or(cpus))));
}

RANKS_TEST(CpusOfRanks, AreTheirMasksTogether, Ranks(1, 2, 3, 4), Backends("shm")) {
  const std::set<int> mine = affinity_mask();
  const std::vector<int> cpus(mine.begin(), mine.end());
  rejoin();
  EXPECT_EQ(cpus_now(), within_quota(static_cast<int>(cpus.size()))) << "not bound";

  bind_to(cpus[static_cast<std::size_t>(rank()) % cpus.size()]);
  rejoin();
  EXPECT_EQ(cpus_now(), within_quota(std::min(size(), static_cast<int>(cpus.size())))) << "each to its own";

  bind_to(cpus[0]);
  rejoin();
  EXPECT_EQ(cpus_now(), 1) << "all to one";
}

RANKS_TEST(CpusOfRanks, AreThoseOfTheProcessWhoseThreadsTheyAre, Ranks(2), Backends("thread")) {
  EXPECT_EQ(cpus_now(), within_quota(static_cast<int>(affinity_mask().size())));
}

double cpu_seconds(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Rank 0 is a second late; the others have nothing else to do. CPU time, not wall time: a rank that polled
// would use the whole second however fast the machine is. 1 % of it is 10 ms (seen: 2 to 5); as much again
// twice over is allowed because each of the hundred wake-ups takes several times as long while other programs
// push this one out of the caches. For the same reason it is the least of three rounds.
RANKS_TEST(Waiting, ForASecondTakesAFewHundredthsOfACoreAtMost, Ranks(2, 4), EveryBackend(), Except("nccl")) {
  // Ranks that are processes count all their threads (tcp has one that serves the connections).
  const clockid_t clock = backend_name() == "thread" ? CLOCK_THREAD_CPUTIME_ID : CLOCK_PROCESS_CPUTIME_ID;
#ifdef __SANITIZE_THREAD__
  constexpr double ALLOWED = 0.3;  // everything is ten times as slow
#else
  constexpr double ALLOWED = 0.03;
#endif
  float x = 1;
  comm::all_reduce(world(), std::span(&x, 1));
  double least = 1;
  for (int round = 0; round < 3; ++round) {
    const double before = cpu_seconds(clock);
    if (rank() == 0) std::this_thread::sleep_for(std::chrono::seconds(1));
    comm::all_reduce(world(), std::span(&x, 1));
    least = std::min(least, cpu_seconds(clock) - before);
  }
  if (rank() != 0) EXPECT_LT(least, ALLOWED);
}

}  // namespace
}  // namespace lockstep

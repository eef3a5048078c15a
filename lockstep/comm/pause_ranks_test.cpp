// A job that is paused longer than its timeout goes on afterwards; a rank that is stopped alone is late for
// the others.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/collectives/collectives.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr seconds TIMEOUT{4};
constexpr seconds PAUSE{5};

// A shell of its own that stops processes after a moment and has them go on after the pause. Nobody waits for
// it: it is stopped by nobody, and its end is the tests' business alone.
class Pauser {
 public:
  explicit Pauser(const std::vector<int>& pids) {
    std::string list;
    for (const int pid : pids) list += str(' ', pid);
    const std::string script =
        str("sleep 0.5; kill -STOP", list, "; sleep ", PAUSE.count(), "; kill -CONT", list);
    shell_ = fork();
    if (shell_ != 0) return;
    execl("/bin/sh", "sh", "-c", script.c_str(), nullptr);
    _exit(127);
  }
  Pauser(const Pauser&) = delete;
  Pauser& operator=(const Pauser&) = delete;
  ~Pauser() { waitpid(shell_, nullptr, 0); }

 private:
  pid_t shell_ = 0;
};

std::vector<int> pids_of(const ProcessGroup& group) {
  const int mine = getpid();
  std::vector<int> all(static_cast<std::size_t>(group.size()));
  comm::all_gather(group, std::span<const int>(&mine, 1), std::span(all)).wait();
  return all;
}

// Computes until this process has been stopped and is late by 300 ms more, in which the others look at their
// clocks.
void compute_over_a_pause() {
  for (auto last = Clock::now();;) {
    const auto now = Clock::now();
    if (now - last > seconds(2)) break;
    last = now;
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
}

// Rank 1 computes; rank 0 waits for a message from it, and all others wait in a barrier.
RANKS_TEST(Pause, OfAllRanksDoesNotCount, Ranks(2, 3), EveryBackend()) {
  const std::vector<int> pids = pids_of(world());
  std::optional<Pauser> pauser;
  if (rank() == 0) pauser.emplace(pids);
  int word = rank() == 1 ? 7 : 0;
  if (rank() == 1) {
    compute_over_a_pause();
    comm::isend(world(), std::span<const int>(&word, 1), 0).wait(TIMEOUT);
  } else if (rank() == 0) {
    comm::irecv(world(), std::span(&word, 1), 1).wait(TIMEOUT);
    EXPECT_EQ(word, 7);
  }
  comm::barrier(world(), true).wait(TIMEOUT);
  pauser.reset();
}

RANKS_TEST(Pause, OfOneRankAloneIsItsOwn, Ranks(2, 3), BackendsWithPeers(), Except("thread")) {
  const std::vector<int> pids = pids_of(world());
  std::optional<Pauser> pauser;
  if (rank() == 0) pauser.emplace(std::vector<int>{pids[1]});
  if (rank() == 1) {
    compute_over_a_pause();
    EXPECT_THROW(comm::barrier(world(), true).wait(), Error);
  } else {
    EXPECT_THAT([&] { comm::barrier(world(), true).wait(TIMEOUT); },
                ::testing::ThrowsMessage<Timeout>(HasSubstr("waiting for rank 1")));
  }
  pauser.reset();
}

}  // namespace
}  // namespace lockstep

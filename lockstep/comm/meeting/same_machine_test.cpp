#include "lockstep/comm/meeting/same_machine.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <thread>

#include "lockstep/comm/meeting/store_meeting.h"
#include "lockstep/os/file_size_limit.h"
#include "lockstep/store/memory_store.h"

namespace lockstep {
namespace same_machine_test {

using namespace std::chrono_literals;

// Runs the proof with a thread for each rank. For each rank: whether it got a hub.
std::vector<int> proven(int size) {
  const auto store = std::make_shared<MemoryStore>();
  std::vector<int> got(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      StoreMeeting meeting({.store = store, .rank = rank, .size = size, .name = "test"});
      SameMachineProof proof(meeting);
      const auto offers = meeting.exchange(proof.offer(), {}, Deadline::in(60s));
      got[static_cast<std::size_t>(rank)] = proof.run(offers[0].text, Deadline::in(60s)) != nullptr;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return got;
}

TEST(SameMachineProof, RanksOfOneMachineAreConnected) {
  for (const int size : {1, 2, 3, 4})
    EXPECT_EQ(proven(size), std::vector<int>(static_cast<std::size_t>(size), 1));
}

// Rank 0 may make no file of the proof's size. The others do not wait for a proof that never comes.
TEST(SameMachineProof, ARankThatCannotProveItTellsTheOthers) {
  rlimit usual{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &usual), 0);
  rlimit tight = usual;
  tight.rlim_cur = 1;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &tight), 0);
  const auto begun = std::chrono::steady_clock::now();
  const std::vector<int> got = proven(3);
  const auto took = std::chrono::steady_clock::now() - begun;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &usual), 0);
  EXPECT_EQ(got, std::vector<int>(3, 0));
  EXPECT_LT(took, 8s) << "a rank waited for a proof until its deadline";
}

}  // namespace same_machine_test
}  // namespace lockstep

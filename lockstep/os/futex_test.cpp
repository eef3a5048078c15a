#include "lockstep/os/futex.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <new>
#include <thread>

#include "lockstep/os/child_process.h"
#include "lockstep/os/process_handle.h"

namespace lockstep {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr unsigned CHILD_GIVES_UP_AFTER_S = 60;  // SIGALRM ends a child that is never woken

// A word that a forked child shares.
class SharedWord {
 public:
  SharedWord()
      : memory_(mmap(nullptr, sizeof(Word), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    new (memory_) Word(0);
  }
  ~SharedWord() { munmap(memory_, sizeof(Word)); }
  SharedWord(const SharedWord&) = delete;
  SharedWord& operator=(const SharedWord&) = delete;

  using Word = std::atomic<std::uint32_t>;
  Word& get() { return *static_cast<Word*>(memory_); }

 private:
  void* memory_;
};

// Sleeps until the word is no longer 0.
pid_t start_sleeper(std::atomic<std::uint32_t>& word) {
  return fork_child([&word] {
    alarm(CHILD_GIVES_UP_AFTER_S);
    while (word.load() == 0) futex_wait(word, 0, hours(1));
    return 0;
  });
}

void wait_until_asleep(pid_t pid) {
  const ProcessHandle process(pid);
  while (process.state() != 'S') std::this_thread::yield();
}

TEST(Futex, AChangedWordIsNotWaitedFor) {
  std::atomic<std::uint32_t> word = 8;
  futex_wait(word, 7, hours(1));  // if it does not return, the test runs into its time limit
}

TEST(Futex, SleepsAsLongAsItWasTold) {
  std::atomic<std::uint32_t> word = 7;
  for (const milliseconds span :
       {milliseconds(3), milliseconds(1005)}) {  // whole seconds are a separate field
    const auto start = Clock::now();
    futex_wait(word, 7, span);
    EXPECT_GE(Clock::now() - start, span);
  }
}

TEST(Futex, WakesEveryOtherProcess) {
  SharedWord word;
  std::array<pid_t, 3> sleepers = {};
  for (pid_t& pid : sleepers) pid = start_sleeper(word.get());
  for (const pid_t pid : sleepers) wait_until_asleep(pid);
  for (const pid_t pid : sleepers) EXPECT_FALSE(has_ended(pid));
  word.get().store(1);
  futex_wake_all(word.get());
  for (const pid_t pid : sleepers) EXPECT_EQ(describe(wait_exit(pid)), describe(ExitStatus{}));
}

TEST(Futex, WakingNobodyIsHarmless) {
  std::atomic<std::uint32_t> word = 0;
  futex_wake_all(word);
  EXPECT_EQ(word.load(), 0U);
}

}  // namespace
}  // namespace lockstep

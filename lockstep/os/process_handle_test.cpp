#include "lockstep/os/process_handle.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "lockstep/os/child_process.h"
#include "lockstep/os/pipe.h"
#include "testing/temp_folder.h"

namespace lockstep {
namespace {

// A process that lives until the test ends it, or until the test ends.
class Child {
 public:
  explicit Child(const std::string& program = "/bin/cat") {
    SpawnRequest request;
    request.executable = program;
    request.arguments = {program};
    request.standard_input = pipe_.read.get();
    child_ = spawn(request);
    EXPECT_EQ(exec_error(child_), 0);
  }
  ~Child() { end(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return child_.pid; }
  void become_zombie() {
    pipe_.write.reset();
    siginfo_t info = {};
    ASSERT_EQ(waitid(P_PID, static_cast<id_t>(pid()), &info, WEXITED | WNOWAIT), 0);
  }
  void stop() {
    signal_process(pid(), SIGSTOP);
    siginfo_t info = {};
    ASSERT_EQ(waitid(P_PID, static_cast<id_t>(pid()), &info, WSTOPPED), 0);
  }
  void end() {
    if (ended_) return;
    ended_ = true;
    signal_process(pid(), SIGKILL);
    wait_exit(pid());
  }

 private:
  Pipe pipe_ = make_pipe();
  ChildProcess child_;
  bool ended_ = false;
};

TEST(ProcessHandle, ThisProcessRuns) {
  const ProcessHandle self(getpid());
  EXPECT_TRUE(self.alive());
  EXPECT_EQ(self.state(), 'R');
  EXPECT_EQ(self.pid(), getpid());
}

TEST(ProcessHandle, AZombieIsDead) {
  Child child;
  const ProcessHandle handle(child.pid());
  EXPECT_TRUE(handle.alive());
  child.become_zombie();
  EXPECT_FALSE(handle.alive());
  EXPECT_EQ(handle.state(), 'Z');
}

TEST(ProcessHandle, WhoIsReapedIsDead) {
  Child child;
  const ProcessHandle handle(child.pid());
  child.end();
  EXPECT_FALSE(handle.alive());
  EXPECT_EQ(handle.state(), '?');
}

TEST(ProcessHandle, AStoppedProcessLives) {
  Child child;
  const ProcessHandle handle(child.pid());
  child.stop();
  EXPECT_TRUE(handle.alive());
  EXPECT_EQ(handle.state(), 'T');
}

TEST(ProcessHandle, OpenedTooLateItIsDead) {
  Child child;
  child.end();
  EXPECT_FALSE(ProcessHandle(child.pid()).alive());
}

// The name stands in parentheses before the state.
TEST(ProcessHandle, ANameMayLookLikeAState) {
  const testing::TempFolder folder;
  std::filesystem::create_symlink("/bin/cat", folder / "a) Z (b");
  Child child(folder / "a) Z (b");
  child.stop();
  EXPECT_EQ(ProcessHandle(child.pid()).state(), 'T');
}

}  // namespace
}  // namespace lockstep

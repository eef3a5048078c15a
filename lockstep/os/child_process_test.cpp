#include "lockstep/os/child_process.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>

#include "lockstep/base/error.h"
#include "lockstep/os/pipe.h"
#include "testing/temp_folder.h"

namespace lockstep {
namespace {

using testing::TempFolder;

SpawnRequest shell(const std::string& script) {
  SpawnRequest request;
  request.executable = "/bin/sh";
  request.arguments = {"sh", "-c", script};
  return request;
}

ExitStatus result_of(const SpawnRequest& request) { return wait_exit(spawn(request).pid); }

// The text that the child prints.
std::string output_of(SpawnRequest request) {
  Pipe pipe = make_pipe();
  request.standard_output = pipe.write.get();
  const ChildProcess child = spawn(request);
  pipe.write.reset();
  std::string text;
  while (read_available(pipe.read.get(), text) != ReadResult::END) {
  }
  wait_exit(child.pid);
  return text;
}

TEST(ChildProcess, TellsHowItEnded) {
  EXPECT_EQ(result_of(shell("exit 0")).shell_code(), 0);
  EXPECT_EQ(result_of(shell("exit 7")).shell_code(), 7);
  const ExitStatus killed = result_of(shell("kill -KILL $$"));
  EXPECT_EQ(killed.signal, SIGKILL);
  EXPECT_EQ(killed.shell_code(), 137);
  EXPECT_FALSE(killed.success());
}

TEST(ChildProcess, IsPolledWithoutBlocking) {
  Pipe hold = make_pipe();
  SpawnRequest request = shell("read line; exit 4");
  request.standard_input = hold.read.get();
  const ChildProcess child = spawn(request);
  EXPECT_FALSE(poll_exit(child.pid).has_value());
  hold.write.reset();
  EXPECT_EQ(wait_exit(child.pid).code, 4);
  EXPECT_EQ(poll_exit(child.pid)->code, 255) << "not a child any more";
}

TEST(ChildProcess, SaysWhyAProgramDoesNotStart) {
  const TempFolder folder;
  for (const auto& [path, error] : {std::pair<std::string, int>{"/no/such/program", ENOENT},
                                    {folder.write("plain", "x"), EACCES},
                                    {"/bin/sh", 0}}) {
    SpawnRequest request = shell("true");
    request.executable = path;
    const ChildProcess child = spawn(request);
    EXPECT_EQ(exec_error(child), error) << path;
    wait_exit(child.pid);
  }
}

TEST(ChildProcess, GetsExactlyTheArgumentsAndTheEnvironment) {
  SpawnRequest request;
  request.executable = "/usr/bin/env";
  request.arguments = {"env", "sh", "-c", "echo \"$0|$1|$A\"; env | grep -c '^HOME='", "a b", "*"};
  request.environment = {"A=$HOME", "PATH=/usr/bin:/bin"};
  EXPECT_EQ(output_of(request), "a b|*|$HOME\n0\n");
}

TEST(ChildProcess, LeadsAGroupAndReadsNothing) {
  SpawnRequest request = shell("read line || echo end of input; [ $(ps -o pgid= -p $$) = $$ ] && echo leads");
  request.environment = {"PATH=/usr/bin:/bin"};
  EXPECT_EQ(output_of(request), "end of input\nleads\n");
}

TEST(ChildProcess, InheritsTheNamedDescriptorsAlone) {
  SocketPair kept = make_packet_socket_pair();
  SocketPair other = make_packet_socket_pair();
  const auto has = [](const Fd& fd) {
    return "[ -e /proc/$$/fd/" + std::to_string(fd.get()) + " ] && echo yes || echo no; ";
  };
  SpawnRequest request = shell(has(kept.first) + has(kept.second) + has(other.first));
  request.inherited = {kept.first.get()};
  EXPECT_EQ(output_of(request), "yes\nno\nno\n");
}

// Not the group of this process, which may have come from another PID namespace and then has no number here.
TEST(ChildProcess, IsReachedInWhateverGroupItIs) {
  for (const int signal : {SIGTERM, SIGKILL}) {
    const pid_t other = spawn(shell("exec sleep 1000")).pid;  // leads a group of its own
    Pipe output = make_pipe();
    SpawnRequest request;
    request.executable = "/usr/bin/perl";
    request.arguments = {"perl", "-e", "setpgrp(0, $ENV{GROUP}) or die; $| = 1; print 'moved'; sleep 1000"};
    request.environment = {"GROUP=" + std::to_string(other)};
    request.standard_output = output.write.get();
    const ChildProcess child = spawn(request);
    std::string text;
    EXPECT_EQ(read_available(output.read.get(), text), ReadResult::MORE);
    EXPECT_EQ(getpgid(child.pid), other);
    signal_process_group(child.pid, signal);
    EXPECT_EQ(wait_exit(child.pid).signal, signal);
    EXPECT_FALSE(has_ended(other));
    signal_process(other, SIGKILL);
    wait_exit(other);
  }
}

TEST(ChildProcess, DiesWithItsParent) {
  Pipe life = make_pipe();
  // A process in between starts a sleep, which keeps the pipe open while it lives.
  const pid_t between = fork_child([&] {
    SpawnRequest request;
    request.executable = "/bin/sleep";
    request.arguments = {"sleep", "1000"};
    request.standard_output = life.write.get();
    const ChildProcess child = spawn(request);
    exec_error(child);
    const ssize_t ignored = write(life.write.get(), "up", 2);
    life.write.reset();
    return pause() + static_cast<int>(ignored);
  });
  life.write.reset();
  std::string text;
  ASSERT_EQ(read_available(life.read.get(), text), ReadResult::MORE);
  signal_process(between, SIGKILL);
  wait_exit(between);
  EXPECT_EQ(read_available(life.read.get(), text), ReadResult::END);
  EXPECT_EQ(text, "up");
}

// kill() takes -1 for all processes and 0 for the caller's group. The test sends signal 0, which is harmless
// even if the check were missing.
TEST(SignalProcess, RefusesNumbersThatNameNoSingleProcess) {
  for (const pid_t pid : {1, 0, -1, -2}) {
    EXPECT_THROW(signal_process(pid, 0), InternalError) << pid;
    EXPECT_THROW(signal_process_group(pid, 0), InternalError) << pid;
  }
}

TEST(ExitStatus, IsDescribedInWords) {
  EXPECT_EQ(describe({3, 0}), "exit code 3");
  EXPECT_EQ(describe({0, SIGSEGV}), "killed by SIGSEGV");
  EXPECT_EQ(signal_name(SIGRTMIN + 3), "SIGRTMIN+3");
}

TEST(FindProgram, LooksLikeAShellDoes) {
  const TempFolder folder;
  folder.write("plain", "x");
  EXPECT_EQ(find_program("sh", "/no/such:/bin").path, "/bin/sh");
  EXPECT_EQ(find_program("/bin/sh", "").error_number, 0);
  EXPECT_EQ(find_program("no-such", "/bin").error_number, ENOENT);
  EXPECT_EQ(find_program("plain", folder.path()).error_number, EACCES);
  EXPECT_EQ(find_program("plain", folder.path() + ":/bin").error_number, EACCES);
  EXPECT_EQ(find_program("/bin/../bin", "").error_number, EISDIR);
  EXPECT_EQ(find_program("", "/bin").error_number, ENOENT);
}

}  // namespace
}  // namespace lockstep

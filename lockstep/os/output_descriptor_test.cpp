#include "lockstep/os/output_descriptor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>

#include "lockstep/os/child_process.h"
#include "lockstep/os/pipe.h"
#include "testing/temp_folder.h"

namespace lockstep {
namespace {

using testing::TempFolder;

// Reads until the other side is closed, while `out` still has text to write.
std::string read_all(int fd, OutputDescriptor& out) {
  std::string text;
  while (out.pending() > 0) {
    read_available(fd, text);
    out.flush();
  }
  set_nonblocking(fd);
  while (read_available(fd, text) == ReadResult::MORE) {
  }
  return text;
}

std::string long_text() {
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += std::to_string(i) + "\n";
  return text;
}

TEST(OutputDescriptor, NeverBlocksOnAPipeAndLeavesItsOtherUsersBlocking) {
  Pipe pipe = make_pipe();
  OutputDescriptor out(pipe.write.get());
  out.append(long_text());
  out.flush();
  EXPECT_GT(out.pending(), 0U);
  EXPECT_EQ(fcntl(pipe.write.get(), F_GETFL) & O_NONBLOCK, 0);
  EXPECT_EQ(read_all(pipe.read.get(), out), long_text());
}

TEST(OutputDescriptor, NeverBlocksOnASocketWhichCannotBeOpenedAnew) {
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  const Fd read_end(ends[0]);
  const Fd write_end(ends[1]);
  OutputDescriptor out(write_end.get());
  out.append(long_text());
  out.flush();
  EXPECT_GT(out.pending(), 0U);
  EXPECT_EQ(read_all(read_end.get(), out), long_text());
}

TEST(OutputDescriptor, AppendsWhereOthersWroteToAFile) {
  const TempFolder folder;
  const Fd file(open(folder.write("out", "").c_str(), O_WRONLY));
  ASSERT_EQ(::write(file.get(), "before\n", 7), 7);
  OutputDescriptor out(file.get());
  out.append("ours\n");
  out.flush();
  ASSERT_EQ(::write(file.get(), "after\n", 6), 6);
  EXPECT_EQ(folder.read("out"), "before\nours\nafter\n");
}

TEST(OutputDescriptor, IsBrokenWhenNobodyReads) {
  sigset_t pipe_signal;
  sigemptyset(&pipe_signal);
  sigaddset(&pipe_signal, SIGPIPE);
  sigset_t before;
  pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
  Pipe pipe = make_pipe();
  OutputDescriptor out(pipe.write.get());
  pipe.read.reset();
  EXPECT_FALSE(out.is_broken());
  out.append("x");
  out.flush();
  EXPECT_TRUE(out.is_broken());
  EXPECT_EQ(out.error(), EPIPE);
  EXPECT_EQ(out.pending(), 0U);
  out.append("dropped");
  out.flush();
  EXPECT_EQ(out.pending(), 0U);
  const timespec no_wait{};
  sigtimedwait(&pipe_signal, nullptr, &no_wait);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

TEST(OutputDescriptor, OnAFullDiskLosesTextAndIsNotBroken) {
  const Fd full(open("/dev/full", O_WRONLY));
  ASSERT_TRUE(full.valid());
  OutputDescriptor out(full.get());
  EXPECT_EQ(out.error(), 0);
  for (int i = 0; i < 2; ++i) {
    out.append("lost\n");
    out.flush();
    EXPECT_EQ(out.pending(), 0U);
    EXPECT_FALSE(out.is_broken());
    EXPECT_EQ(out.error(), ENOSPC);
  }
}

TEST(OutputDescriptor, GoesOnWhenThereIsRoomAgain) {
  const TempFolder folder;
  const std::string path = folder.write("out", "");
  const Fd file(open(path.c_str(), O_WRONLY | O_APPEND));
  const pid_t child = fork_child([&] {
    const rlimit limit{4, 4};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
    OutputDescriptor out(file.get());
    for (const char* text : {"one\n", "lost\n"}) {
      out.append(text);
      out.flush();
    }
    if (out.error() != EFBIG || out.is_broken()) return 2;
    if (ftruncate(file.get(), 0) != 0) return 3;
    out.append("two\n");
    out.flush();
    return 0;
  });
  EXPECT_EQ(wait_exit(child).shell_code(), 0);
  EXPECT_EQ(folder.read("out"), "two\n");
}

TEST(OutputDescriptor, KnowsDescriptorsOfOneFile) {
  Pipe pipe = make_pipe();
  const Pipe other = make_pipe();
  const Fd same(dup(pipe.write.get()));
  EXPECT_TRUE(is_same_file(pipe.write.get(), same.get()));
  EXPECT_FALSE(is_same_file(pipe.write.get(), other.write.get()));
  EXPECT_FALSE(is_same_file(pipe.write.get(), -1));
}

}  // namespace
}  // namespace lockstep

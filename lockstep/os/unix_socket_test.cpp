#include "lockstep/os/unix_socket.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "lockstep/base/error.h"
#include "lockstep/os/child_process.h"
#include "lockstep/os/pipe.h"
#include "testing/error_number.h"
#include "testing/temp_folder.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using testing::error_number_of;
using testing::TempFolder;

const Deadline AT_ONCE = Deadline::in(milliseconds(0));

bool closes_on_exec(int fd) { return (fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0; }

TEST(UnixSocket, MessagesStayWholeAndInOrder) {
  const SocketPair pair = make_packet_socket_pair();
  const std::string largest(MAX_MESSAGE_BYTES, 'x');
  for (const std::string& text : {std::string("a"), std::string("b\0c", 3), largest})
    EXPECT_TRUE(send_message(pair.first.get(), text));
  Message message;
  for (const std::string& text : {std::string("a"), std::string("b\0c", 3), largest}) {
    ASSERT_EQ(receive_message(pair.second.get(), Deadline::never(), message), Received::MESSAGE);
    EXPECT_EQ(message.text, text);
    EXPECT_TRUE(message.fds.empty());
  }
  EXPECT_EQ(receive_message(pair.second.get(), AT_ONCE, message), Received::TIMED_OUT);
}

TEST(UnixSocket, DescriptorsArriveAndStayOutOfOtherPrograms) {
  const SocketPair pair = make_packet_socket_pair();
  Pipe pipe = make_pipe();
  const std::vector<int> most(MAX_MESSAGE_FDS, pipe.write.get());
  ASSERT_TRUE(send_message(pair.first.get(), "take these", most));
  pipe.write.reset();
  Message message;
  ASSERT_EQ(receive_message(pair.second.get(), Deadline::never(), message), Received::MESSAGE);
  ASSERT_EQ(message.fds.size(), MAX_MESSAGE_FDS);
  for (const Fd& fd : message.fds) {
    EXPECT_TRUE(closes_on_exec(fd.get()));
    EXPECT_EQ(write(fd.get(), "x", 1), 1);
  }
  message.fds.clear();
  std::string text;
  while (read_available(pipe.read.get(), text) != ReadResult::END) {
  }
  EXPECT_EQ(text, std::string(MAX_MESSAGE_FDS, 'x'));
}

TEST(UnixSocket, WhatDoesNotFitAMessageIsRefused) {
  const SocketPair pair = make_packet_socket_pair();
  const std::vector<int> too_many(MAX_MESSAGE_FDS + 1, pair.first.get());
  EXPECT_THROW(send_message(pair.first.get(), ""), InternalError);
  EXPECT_THROW(send_message(pair.first.get(), std::string(MAX_MESSAGE_BYTES + 1, 'x')), InternalError);
  EXPECT_THROW(send_message(pair.first.get(), "x", too_many), InternalError);
  Message message;
  EXPECT_EQ(receive_message(pair.second.get(), AT_ONCE, message), Received::TIMED_OUT);
}

// The kernel limits the descriptors that a user's processes have in flight to the limit of open files. A user
// who may raise limits is exempt, so root becomes another user.
TEST(UnixSocket, TooManyDescriptorsOnTheirWayWaitForTheReceiver) {
  const pid_t child = fork_child([] {
    const rlimit limit{64, 64};
    constexpr uid_t NOBODY = 65534;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return 90;
    if (geteuid() == 0 && setresuid(NOBODY, NOBODY, NOBODY) != 0) return 91;
    const SocketPair pair = make_packet_socket_pair();
    const std::vector<int> fds(MAX_MESSAGE_FDS, pair.first.get());
    int sent = 0;
    std::string told;
    try {
      while (send_message(pair.first.get(), "x", fds, Deadline::in(milliseconds(20))) == Sent::SENT &&
             sent < 100)
        ++sent;
    } catch (const SystemError& error) {
      if (error.error_number() == ETOOMANYREFS) told = error.what();
    }
    if (told.find("ulimit -n") == std::string::npos) return 1;
    Message message;
    for (int i = 0; i < sent; ++i) {
      if (receive_message(pair.second.get(), AT_ONCE, message) != Received::MESSAGE) return 2;
    }
    return send_message(pair.first.get(), "x", fds, Deadline::in(std::chrono::seconds(10))) == Sent::SENT ? 0
                                                                                                          : 3;
  });
  EXPECT_EQ(wait_exit(child).shell_code(), 0);
}

TEST(UnixSocket, AFullSocketIsNotWaitedForLongerThanTheDeadline) {
  const SocketPair pair = make_packet_socket_pair();
  const std::string largest(MAX_MESSAGE_BYTES, 'x');
  Sent last = Sent::SENT;
  for (int i = 0; i < 10000 && last == Sent::SENT; ++i)
    last = send_message(pair.first.get(), largest, {}, AT_ONCE);
  EXPECT_EQ(last, Sent::TIMED_OUT);
  Message message;
  for (int i = 0; i < 3; ++i)
    ASSERT_EQ(receive_message(pair.second.get(), AT_ONCE, message), Received::MESSAGE);
  EXPECT_EQ(send_message(pair.first.get(), "fits", {}, AT_ONCE), Sent::SENT);
}

TEST(UnixSocket, DescriptorsForWhichThereIsNoRoomAreAnError) {
  const pid_t child = fork_child([] {
    const SocketPair pair = make_packet_socket_pair();
    if (!send_message(pair.first.get(), "x", std::vector<int>(MAX_MESSAGE_FDS, pair.first.get()))) return 1;
    const rlimit limit{static_cast<rlim_t>(pair.second.get()) + 3, 1024};
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return 2;
    Message message;
    return error_number_of([&] { receive_message(pair.second.get(), AT_ONCE, message); }) == EMFILE ? 0 : 3;
  });
  EXPECT_EQ(wait_exit(child).shell_code(), 0);
}

TEST(UnixSocket, WhatTheGoneHaveSaidIsHeardBeforeTheirEnd) {
  SocketPair pair = make_packet_socket_pair();
  ASSERT_TRUE(send_message(pair.first.get(), "last words"));
  pair.first.reset();
  Message message;
  ASSERT_EQ(receive_message(pair.second.get(), Deadline::never(), message), Received::MESSAGE);
  EXPECT_EQ(message.text, "last words");
  EXPECT_EQ(receive_message(pair.second.get(), Deadline::never(), message), Received::CLOSED);
  EXPECT_FALSE(send_message(pair.second.get(), "anybody there?"));  // and no SIGPIPE
}

TEST(UnixSocket, AnUnreadMessageOfOursDoesNotHideTheirs) {
  SocketPair pair = make_packet_socket_pair();
  ASSERT_TRUE(send_message(pair.second.get(), "never read"));
  ASSERT_TRUE(send_message(pair.first.get(), "last words"));
  pair.first.reset();  // with unread data: the kernel reports a reset first
  Message message;
  ASSERT_EQ(receive_message(pair.second.get(), Deadline::never(), message), Received::MESSAGE);
  EXPECT_EQ(message.text, "last words");
}

TEST(UnixSocket, WaitsForTheOneThatCanBeRead) {
  const SocketPair silent = make_packet_socket_pair();
  SocketPair pair = make_packet_socket_pair();
  const std::vector<int> sockets = {-1, silent.second.get(), pair.second.get()};
  EXPECT_EQ(wait_readable(sockets, AT_ONCE), std::nullopt);
  ASSERT_TRUE(send_message(pair.first.get(), "x"));
  EXPECT_EQ(wait_readable(sockets, Deadline::never()), 2U);
  Message message;
  receive_message(pair.second.get(), AT_ONCE, message);
  EXPECT_EQ(wait_readable(sockets, AT_ONCE), std::nullopt);
  pair.first.reset();
  EXPECT_EQ(wait_readable(sockets, Deadline::never()), 2U);  // closed
}

TEST(UnixSocket, KnowsItsKind) {
  const Pipe pipe = make_pipe();
  const SocketPair pair = make_packet_socket_pair();
  const Fd stream(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_TRUE(is_packet_socket(pair.first.get()));
  EXPECT_FALSE(is_packet_socket(stream.get()));
  EXPECT_FALSE(is_packet_socket(pipe.read.get()));
  EXPECT_FALSE(is_packet_socket(-1));
}

TEST(UnixSocket, DescriptorsAreKeptFromPrograms) {
  Fd fd(open("/dev/null", O_RDONLY));  // NOLINT(android-cloexec-open)
  EXPECT_FALSE(closes_on_exec(fd.get()));
  EXPECT_TRUE(closes_on_exec(duplicate(fd.get()).get()));
  set_close_on_exec(fd.get());
  EXPECT_TRUE(closes_on_exec(fd.get()));
  EXPECT_EQ(error_number_of([] { duplicate(-1); }), EBADF);
}

TEST(UnixSocket, ListensAndKnowsWhoConnects) {
  const TempFolder folder;
  const std::string path = folder / "socket";
  const Fd listener = listen_at(path);
  EXPECT_FALSE(accept_from_same_user(listener.get(), AT_ONCE).valid());
  const pid_t child = fork_child([&] {
    const auto socket = connect_to(path);
    return socket && send_message(socket->get(), "hello") ? 0 : 1;
  });
  const Fd accepted = accept_from_same_user(listener.get(), Deadline::never());
  EXPECT_EQ(peer_pid(accepted.get()), child);
  Message message;
  ASSERT_EQ(receive_message(accepted.get(), Deadline::never(), message), Received::MESSAGE);
  EXPECT_EQ(message.text, "hello");
  EXPECT_EQ(wait_exit(child).code, 0);
}

TEST(UnixSocket, NobodyListensIsNoError) {
  const TempFolder folder;
  EXPECT_EQ(connect_to(folder / "socket"), std::nullopt);
  listen_at(folder / "socket");  // closed at once: the file stays
  EXPECT_EQ(connect_to(folder / "socket"), std::nullopt);
}

TEST(UnixSocket, ADeadSocketIsReplacedAndALivingOneIsNot) {
  const TempFolder folder;
  const std::string path = folder / "socket";
  listen_at(path);  // closed at once
  const Fd listener = listen_at(path);
  EXPECT_EQ(error_number_of([&] { listen_at(path); }), EADDRINUSE);
  EXPECT_TRUE(connect_to(path).has_value());
  remove_socket(path);
  EXPECT_EQ(connect_to(path), std::nullopt);
}

TEST(UnixSocket, ATooLongPathSaysWhatToDo) {
  const std::string path = "/tmp/" + std::string(200, 'x');
  try {
    listen_at(path);
    FAIL();
  } catch (const SystemError& error) {
    EXPECT_EQ(error.error_number(), ENAMETOOLONG);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("XDG_RUNTIME_DIR"));
  }
  EXPECT_EQ(error_number_of([&] { connect_to(path); }), ENAMETOOLONG);
}

}  // namespace
}  // namespace lockstep

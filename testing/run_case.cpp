// run_case BINARY ARGUMENTS...: runs a test binary with these arguments, in a copy of its fork server
// (fork_server.h).
//
// The binary runs by itself, as if there were no run_case, where a copy would not do or cannot be had: it
// lists its tests, the environment has what is read while it loads (GTEST_*, LD_*), or
// LOCKSTEP_FORK_SERVER=0. Exit status: that of the case;
// 128 and the signal's number where a signal ended it.
#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "testing/fork_server.h"
#include "testing/fork_server_protocol.h"

namespace {

using namespace lockstep::harness;

bool wants_its_own_process(int argc, char** argv) {
  for (int i = 2; i < argc; ++i) {
    if (std::string_view(argv[i]).starts_with("--gtest_list_tests")) return true;
  }
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view variable = *entry;
    for (const auto* name : {"GTEST_", "LD_", "LOCKSTEP_FORK_SERVER=0"}) {
      if (variable.starts_with(name)) return true;
    }
  }
  return false;
}

// An abstract socket: nothing is left of it. Its name changes with the file, so that a rebuilt binary has a
// server of its own.
std::optional<sockaddr_un> address_of(const char* binary, socklen_t& size) {
  struct stat file = {};
  if (stat(binary, &file) != 0) return {};
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const int length =
      std::snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "lockstep-cases-%u-%lu-%lu-%ld.%ld",
                    geteuid(), static_cast<unsigned long>(file.st_dev),
                    static_cast<unsigned long>(file.st_ino), file.st_mtim.tv_sec, file.st_mtim.tv_nsec);
  size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<std::size_t>(length));
  return address;
}

// The server inherits the socket on which run_case listens for it: connections queue there until it is
// loaded.
bool start_server(const char* binary, int listener) {
  const std::string argument = std::string(FORK_SERVER_ARGUMENT) + std::to_string(STDERR_FILENO + 1);
  std::array<char*, 3> arguments = {const_cast<char*>(binary), const_cast<char*>(argument.c_str()), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (const int fd : {0, 1, 2}) posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_RDWR, 0);
  posix_spawn_file_actions_adddup2(&actions, listener, STDERR_FILENO + 1);
  posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 2);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, binary, &actions, &attributes, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  return error == 0;
}

// A connection to the binary's server, or -1.
int connect_to_server(const char* binary) {
  socklen_t size = 0;
  const auto address = address_of(binary, size);
  if (!address) return -1;
  const auto* const name = reinterpret_cast<const sockaddr*>(&*address);
  const int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (bind(listener, name, size) == 0 &&
      (listen(listener, SOMAXCONN) != 0 || !start_server(binary, listener)))
    return -1;
  const int connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  const bool connected = connect(connection, name, size) == 0 && is_mine(connection);
  close(listener);
  return connected ? connection : -1;
}

bool send_request(int connection, int argc, char** argv) {
  std::string text = std::to_string(argc - 1) + '\0';
  for (int i = 1; i < argc; ++i) (text += argv[i]) += '\0';
  for (char** entry = environ; *entry != nullptr; ++entry) (text += *entry) += '\0';
  const int folder = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (text.size() > LARGEST_CASE_REQUEST || folder < 0) return false;
  const std::array<int, CASE_DESCRIPTORS> descriptors = {0, 1, 2, folder};
  iovec part = {text.data(), text.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof descriptors)> control{};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof descriptors);
  std::memcpy(CMSG_DATA(header), descriptors.data(), sizeof descriptors);
  return sendmsg(connection, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
}

std::optional<CaseAnswer> receive_answer(int connection) {
  CaseAnswer packet = {};
  if (recv(connection, &packet, sizeof packet, 0) != sizeof packet) return {};
  return packet;
}

// The exit status of the case; nothing if it did not begin.
std::optional<int> run_in_copy(int argc, char** argv) {
  const int connection = connect_to_server(argv[1]);
  if (connection < 0 || !send_request(connection, argc, argv) || !receive_answer(connection)) return {};
  const auto end = receive_answer(connection);
  if (!end) {
    std::fprintf(stderr, "run_case: the fork server of %s ended before its case did\n", argv[1]);
    return 125;
  }
  if (!WIFSIGNALED(end->value)) return WEXITSTATUS(end->value);
  std::fprintf(stderr, "run_case: the case was ended by signal %d (%s)\n", WTERMSIG(end->value),
               strsignal(WTERMSIG(end->value)));
  return 128 + WTERMSIG(end->value);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: run_case BINARY ARGUMENTS...\n");
    return 64;
  }
  if (!wants_its_own_process(argc, argv)) {
    if (const auto status = run_in_copy(argc, argv)) return *status;
  }
  execv(argv[1], argv + 1);
  std::perror(argv[1]);
  return 127;
}

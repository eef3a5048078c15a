#include "testing/fork_server.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "testing/fork_server_protocol.h"

namespace lockstep::harness {
namespace {

constexpr int IDLE_MS = 10000;

struct Request {
  std::vector<std::string> arguments, environment;
  std::array<int, CASE_DESCRIPTORS> descriptors = {-1, -1, -1, -1};
};

// A case that runs: the connection of its run_case, and a descriptor that is readable when the process has
// ended.
struct Case {
  int connection;
  pid_t pid;
  int pidfd;
};

Request parse(std::string_view text) {
  Request request;
  const auto take = [&text] {
    const std::string_view part = text.substr(0, text.find('\0'));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    return part;
  };
  std::size_t count = 0;
  const std::string_view number = take();
  std::from_chars(number.data(), number.data() + number.size(), count);
  while (request.arguments.size() < count && !text.empty()) request.arguments.emplace_back(take());
  while (!text.empty()) request.environment.emplace_back(take());
  return request;
}

std::optional<Request> receive(int connection) {
  static std::vector<char> buffer(LARGEST_CASE_REQUEST);
  iovec part = {buffer.data(), buffer.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * CASE_DESCRIPTORS)> control{};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t got = recvmsg(connection, &message, MSG_CMSG_CLOEXEC);
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (got <= 0 || header == nullptr || header->cmsg_len != CMSG_LEN(sizeof(int) * CASE_DESCRIPTORS))
    return {};
  Request request = parse({buffer.data(), static_cast<std::size_t>(got)});
  std::memcpy(request.descriptors.data(), CMSG_DATA(header), sizeof request.descriptors);
  return request;
}

void answer(int connection, CaseAnswerKind kind, int value) {
  const CaseAnswer packet = {kind, value};
  send(connection, &packet, sizeof packet, MSG_NOSIGNAL);  // a run_case that is gone is seen by poll()
}

// In the copy: takes the place that run_case had.
void become_case(Request request, int* argc, char*** argv) {
  static Request own;
  own = std::move(request);
  setpgid(0, 0);
  for (int i = 0; i < 3; ++i) dup2(own.descriptors[static_cast<std::size_t>(i)], i);
  if (fchdir(own.descriptors[3]) != 0) _exit(126);
  close_range(STDERR_FILENO + 1, ~0U, 0);
  static std::vector<char*> arguments, variables;
  for (std::string& text : own.arguments) arguments.push_back(text.data());
  for (std::string& text : own.environment) variables.push_back(text.data());
  *argc = static_cast<int>(arguments.size());
  arguments.push_back(nullptr);
  variables.push_back(nullptr);
  *argv = arguments.data();
  environ = variables.data();
  spare_teardown_of_libraries();
}

bool spares_teardown = false;

void end_at_once(int status, void*) {
  if (!spares_teardown) return;
  std::fflush(nullptr);
  _exit(status);
}

// Runs before all other initialisers of this binary and after those of the libraries. exit() goes the other
// way. GoogleTest's registry of thousands of tests is made first: to destroy it, each copy of the server
// would copy its pages.
[[gnu::constructor(101)]] void stand_between_binary_and_libraries() {
  ::testing::UnitTest::GetInstance();
  on_exit(end_at_once, nullptr);
}

int open_process(pid_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }

class Server {
 public:
  explicit Server(int listener) : listener_(listener) {}

  // Returns in a copy only.
  void run(int* argc, char*** argv) {
    while (true) {
      std::vector<pollfd> polled = {{listener_, POLLIN, 0}};
      for (const Case& one : cases_) {
        polled.push_back({one.pidfd, POLLIN, 0});
        polled.push_back({one.connection, 0, 0});  // POLLHUP
      }
      const int ready = poll(polled.data(), polled.size(), cases_.empty() ? IDLE_MS : -1);
      if (ready == 0) _exit(0);
      if (ready < 0) continue;
      look_after_cases(polled);
      if (polled[0].revents != 0 && accept_case(argc, argv)) return;
    }
  }

 private:
  void look_after_cases(const std::vector<pollfd>& polled) {
    std::vector<Case> running;
    for (std::size_t i = 0; i < cases_.size(); ++i) {
      const Case& one = cases_[i];
      const bool has_ended = polled[1 + 2 * i].revents != 0;
      if (!has_ended && polled[2 + 2 * i].revents != 0) kill(-one.pid, SIGKILL);  // nobody waits for it
      if (!has_ended) {
        running.push_back(one);
        continue;
      }
      int status = 0;
      waitpid(one.pid, &status, 0);
      answer(one.connection, CaseAnswerKind::ENDED, status);
      close(one.connection);
      close(one.pidfd);
    }
    cases_ = std::move(running);
  }

  // True in the copy.
  bool accept_case(int* argc, char*** argv) {
    const int connection = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection < 0) return false;
    std::optional<Request> request = is_mine(connection) ? receive(connection) : std::nullopt;
    const pid_t pid = request ? fork() : -1;
    if (pid == 0) {
      become_case(std::move(*request), argc, argv);
      return true;
    }
    const int pidfd = pid > 0 ? open_process(pid) : -1;
    if (request) {
      for (const int fd : request->descriptors) close(fd);
    }
    if (pid > 0) setpgid(pid, pid);  // the server or the copy, whichever comes first
    if (pidfd < 0) {
      if (pid > 0) kill(pid, SIGKILL);
      if (pid > 0) waitpid(pid, nullptr, 0);
      close(connection);  // run_case runs the binary itself
      return false;
    }
    answer(connection, CaseAnswerKind::STARTED, pid);
    cases_.push_back({connection, pid, pidfd});
    return false;
  }

  const int listener_;
  std::vector<Case> cases_;
};

}  // namespace

void spare_teardown_of_libraries() {
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
  spares_teardown = true;
#endif
}

void serve_cases(int* argc, char*** argv) {
  if (*argc != 2) return;
  const std::string_view argument = (*argv)[1];
  if (!argument.starts_with(FORK_SERVER_ARGUMENT)) return;
  int listener = -1;
  std::from_chars(argument.data() + FORK_SERVER_ARGUMENT.size(), argument.data() + argument.size(), listener);
  const int own = open_process(getpid());
  if (own < 0) _exit(0);  // a kernel without pidfd: each run_case runs the binary itself
  close(own);
  Server(listener).run(argc, argv);
}

}  // namespace lockstep::harness

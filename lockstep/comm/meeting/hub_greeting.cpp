#include "lockstep/comm/meeting/hub_greeting.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <utility>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/os/process.h"
#include "lockstep/os/process_handle.h"

namespace lockstep {
namespace {

constexpr char HELLO = 'H';  // "H PID", with a pidfd of the process
constexpr char ENDED = 'E';  // "E PID CODE"

struct Greeting {
  long pid = 0;
  int code = 0;
};

Greeting parse(const std::string& text) {
  Greeting greeting;
  const char* const end = text.data() + text.size();
  const auto pid = std::from_chars(std::min(text.data() + 2, end), end, greeting.pid);
  if (pid.ptr < end) std::from_chars(pid.ptr + 1, end, greeting.code);
  return greeting;
}

// This process's sockets, for its goodbye. By then, a descriptor's number may mean another file.
struct Ends {
  pid_t pid = 0;
  std::vector<std::pair<int, unsigned long>> sockets;
};

Ends& ends() {
  static auto* const instance = new Ends;  // used in an exit handler
  return *instance;
}

// Does not wait: a message that cannot be sent now is dropped.
void say(int socket, const std::string& text, const std::vector<int>& fds = {}) {
  try {
    send_message(socket, text, fds, Deadline::in(std::chrono::seconds(0)));
  } catch (const SystemError&) {  // NOLINT(bugprone-empty-catch): too many descriptors in flight, or no
                                  // socket any more
  }
}

void say_goodbye(int code, void*) {
  if (current_pid() != ends().pid) return;  // a fork
  for (const auto& [fd, id] : ends().sockets) {
    if (socket_number(fd) == id) say(fd, str(ENDED, ' ', current_pid(), ' ', code));
  }
}

[[maybe_unused]] const bool IS_GREETED = [] {
  const auto fds = env("LOCKSTEP_HUB_FDS");
  if (fds) greet_hub(*fds);
  return fds.has_value();
}();

}  // namespace

void greet_hub(const std::string& fds) {
  const char* at = fds.data();
  const char* const end = at + fds.size();
  const Fd self = own_handle();
  while (at < end) {
    int fd = -1;
    const auto [next, error] = std::from_chars(at, end, fd);
    if (error != std::errc()) break;
    at = next + 1;
    if (!is_packet_socket(fd)) continue;
    ends().sockets.emplace_back(fd, socket_number(fd));
    say(fd, str(HELLO, ' ', current_pid()), self.valid() ? std::vector<int>{self.get()} : std::vector<int>());
  }
  if (ends().sockets.empty() || std::exchange(ends().pid, current_pid()) != 0) return;
  on_exit(say_goodbye, nullptr);
}

bool HubPeer::take(Message& message, bool watches) {
  if (message.text.empty() || (message.text[0] != HELLO && message.text[0] != ENDED)) return false;
  const Greeting greeting = parse(message.text);
  if (message.text[0] == HELLO) {
    processes_.push_back({greeting.pid, message.fds.empty() || !watches ? Fd() : std::move(message.fds[0])});
    how_ended_.clear();
    return true;
  }
  std::erase_if(processes_, [&](const Process& one) { return one.pid == greeting.pid; });
  if (greeting.code != 0) ended_badly(str("its program ended with exit code ", greeting.code));
  return true;
}

void HubPeer::note_death() {
  std::erase_if(processes_, [](const Process& one) {
    return one.handle.valid() &&
           wait_readable({one.handle.get()}, Deadline::in(std::chrono::seconds(0))).has_value();
  });
  ended_badly("its program died");
}

void HubPeer::ended_badly(std::string how) {
  if (!processes_.empty()) return;
  how_ended_ = std::move(how);
  grace_ = Deadline::in(GRACE);
}

}  // namespace lockstep

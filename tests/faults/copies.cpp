#include "tests/faults/copies.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::trial {
namespace {

constexpr std::size_t LARGEST_REQUEST = 65536, MOST_DESCRIPTORS = 16;

struct Request {
  std::vector<std::string> words;  // number of arguments, the arguments, the folder, the environment
  std::vector<int> descriptors;    // output, then the ends of the hub
};

Request receive(int connection) {
  static std::array<char, LARGEST_REQUEST> buffer;
  iovec part = {buffer.data(), buffer.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * MOST_DESCRIPTORS)> control{};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t got = recvmsg(connection, &message, 0);
  if (got <= 0) std::_Exit(got == 0 ? 0 : 1);
  Request request;
  for (std::string_view text(buffer.data(), static_cast<std::size_t>(got)); !text.empty();) {
    const std::string_view word = text.substr(0, text.find('\0'));
    request.words.emplace_back(word);
    text.remove_prefix(std::min(text.size(), word.size() + 1));
  }
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (header == nullptr) std::_Exit(1);
  request.descriptors.resize((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
  std::memcpy(request.descriptors.data(), CMSG_DATA(header), header->cmsg_len - CMSG_LEN(0));
  return request;
}

// In the copy: what exec() would have given it.
void become_rank(int connection, Request request, int* argc, char*** argv) {
  static Request own;
  own = std::move(request);
  close(connection);
  const int nothing = open("/dev/null", O_RDONLY);
  dup2(nothing, STDIN_FILENO);
  dup2(own.descriptors[0], STDOUT_FILENO);
  dup2(own.descriptors[0], STDERR_FILENO);
  close(nothing);
  close(own.descriptors[0]);
  std::string hub = "LOCKSTEP_HUB_FDS=";
  for (std::size_t i = 1; i < own.descriptors.size(); ++i)
    hub += (i > 1 ? "," : "") + std::to_string(own.descriptors[i]);
  own.words.push_back(hub);
  const auto count = static_cast<std::size_t>(std::stoi(own.words[0]));
  if (chdir(own.words[count + 1].c_str()) != 0) std::_Exit(126);
  static std::vector<char*> arguments, variables;
  for (std::size_t i = 1; i <= count; ++i) arguments.push_back(own.words[i].data());
  for (std::size_t i = count + 2; i < own.words.size(); ++i) variables.push_back(own.words[i].data());
  *argc = static_cast<int>(count);
  arguments.push_back(nullptr);
  variables.push_back(nullptr);
  *argv = arguments.data();
  environ = variables.data();
}

}  // namespace

bool serve_copies(int* argc, char*** argv) {
  if (*argc != 3 || std::strcmp((*argv)[1], "--copies") != 0) return false;
  const int connection = std::stoi((*argv)[2]);
  auto* const pid = static_cast<pid_t*>(
      mmap(nullptr, sizeof(pid_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  if (pid == MAP_FAILED) std::_Exit(1);
  while (true) {
    Request request = receive(connection);
    const pid_t between = fork();  // ends at once, so that the copy gets another parent
    if (between == 0) {
      const pid_t copy = fork();
      if (copy != 0) {
        *pid = copy;
        std::_Exit(copy > 0 ? 0 : 1);
      }
      become_rank(connection, std::move(request), argc, argv);
      return true;
    }
    int status = 0;
    waitpid(between, &status, 0);
    for (const int descriptor : request.descriptors) close(descriptor);
    const std::string answer = std::to_string(status == 0 ? *pid : -1);
    if (send(connection, answer.data(), answer.size(), MSG_NOSIGNAL) < 0) std::_Exit(1);
  }
}

}  // namespace lockstep::trial

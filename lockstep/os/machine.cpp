#include "lockstep/os/machine.h"

#include <netinet/in.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/os/fd.h"

namespace lockstep {

std::string host_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? printable(name.data()) : "localhost";
}

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  file >> id;
  return printable(id);
}

std::string random_hex(std::size_t bytes) {
  constexpr char HEX[] = "0123456789abcdef";
  std::vector<unsigned char> random(bytes);
  if (getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(bytes)) {
    throw SystemError("cannot get random bytes", errno);
  }
  std::string text;
  for (const unsigned char byte : random) {
    text += HEX[byte >> 4U];
    text += HEX[byte & 0xfU];
  }
  return text;
}

int free_port() {
  const Fd probe(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);  // NOLINT: the sockets interface wants it
  if (!probe.valid() || bind(probe.get(), generic, size) != 0 ||
      getsockname(probe.get(), generic, &size) != 0) {
    throw SystemError("cannot find a free port on 127.0.0.1", errno);
  }
  return ntohs(address.sin_port);
}

int gpu_count(const std::string& devices) {
  int count = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(devices, error)) {
    const std::string name = entry.path().filename();
    const std::size_t digits = std::string_view("nvidia").size();
    count += name.starts_with("nvidia") && name.size() > digits &&
             name.find_first_not_of("0123456789", digits) == std::string::npos;
  }
  return count;
}

}  // namespace lockstep

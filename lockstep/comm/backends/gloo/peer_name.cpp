// getpeername() as Gloo calls it. Gloo asks for the peer's address on the thread that handles all its
// sockets, and throws there if the call fails. Nothing catches that, so it would end this process. The call
// fails when the other process ended between its connect() and this process's accept(). Gloo needs the
// address for messages only, so it gets an empty one, and finds the connection broken when it reads.
//
// Whom it reaches   The module is opened with RTLD_DEEPBIND | RTLD_LOCAL (library.h). So the module's libgloo
//                   finds this function before the C library's, and nothing else in the process does.
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

// NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name): libc's have two underscores
extern "C" __attribute__((visibility("default"))) int getpeername(int socket, sockaddr* address,
                                                                  socklen_t* size) noexcept {
  const auto result = static_cast<int>(syscall(SYS_getpeername, socket, address, size));
  if (result == 0 || errno != ENOTCONN) return result;
  std::fill_n(reinterpret_cast<char*>(address), *size, '\0');  // NOLINT: an address is bytes
  address->sa_family = AF_INET;
  return 0;
}

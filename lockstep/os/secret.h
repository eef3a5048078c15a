// Secret: 32 bytes that the processes of one job know and nobody else. A process that knows it may take part
// in the job.
//
//   const Secret secret = Secret::random();
//   const Secret secret = Secret::from_file("/home/me/.lockstep-secret");   // head -c 32 /dev/urandom > FILE
//   const Fd fd = secret.to_descriptor();                                   // for a child to inherit
//
// It never appears in an error, a log line, an argument list or an environment variable. Its memory is
// overwritten when it is destroyed.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/base/visibility.h"
#include "lockstep/os/fd.h"

namespace LOCKSTEP_PUBLIC lockstep {

class Secret {
 public:
  static constexpr std::size_t BYTES = 32;

  static Secret random();
  // 32 raw bytes, or 64 hexadecimal digits; one newline may follow. Throws InvalidArgument that says so (and
  // not what it got); `origin` names where the text is from.
  static Secret from_text(std::string_view text, const std::string& origin);
  // The file must be a regular one that belongs to this user and that nobody else can read or write (mode
  // 0600 or less); else InvalidArgument says why and which command mends it.
  static Secret from_file(const std::string& path);
  // An inherited descriptor (LOCKSTEP_SECRET_FD), from its start if it has one, so that it can be read again.
  // It is set close-on-exec. InvalidArgument when it is not open or holds something else.
  static Secret from_descriptor(int fd);

  Secret(const Secret&) = default;
  Secret& operator=(const Secret&) = default;
  ~Secret();

  std::span<const std::byte, BYTES> bytes() const { return bytes_; }
  std::string raw() const;     // the 32 bytes, for Meeting::secret(); this copy is the caller's to guard
  std::string as_hex() const;  // for a secret file
  Fd to_descriptor()
      const;  // a sealed memfd, close-on-exec: a launcher passes it on by SpawnRequest::inherited
  // In constant time.
  friend bool operator==(const Secret& a, const Secret& b);

 private:
  Secret() = default;
  std::array<std::byte, BYTES> bytes_{};
};

}  // namespace lockstep

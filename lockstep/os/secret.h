// Secret: 32 bytes that only the processes of one job know. A process that knows them may join the job.
//
//   const Secret secret = Secret::random();
//   const Secret secret = Secret::from_file("/home/me/.lockstep-secret");   // head -c 32 /dev/urandom > FILE
//   const Fd fd = secret.to_descriptor();                                   // for a child to inherit
//
// It never appears in an error, a log line, an argument list or an environment variable. The destructor
// overwrites its memory.
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
  // Accepts 32 raw bytes, or 64 hexadecimal digits; one newline may follow. Otherwise throws InvalidArgument
  // without the text itself. `origin` names the source of the text.
  static Secret from_text(std::string_view text, const std::string& origin);
  // The file must be a regular file that belongs to this user and that nobody else can read or write (mode
  // 0600 or less). Otherwise throws InvalidArgument with the reason, and with the command that corrects the
  // mode.
  static Secret from_file(const std::string& path);
  // Reads an inherited descriptor (LOCKSTEP_SECRET_FD). If it is seekable, reading starts at its beginning,
  // so that it can be read again. Sets it close-on-exec. Throws InvalidArgument if it is not open or does not
  // hold a secret.
  static Secret from_descriptor(int fd);

  Secret(const Secret&) = default;
  Secret& operator=(const Secret&) = default;
  ~Secret();

  std::span<const std::byte, BYTES> bytes() const { return bytes_; }
  std::string raw() const;     // the 32 bytes, for Meeting::secret(); the caller must protect this copy
  std::string as_hex() const;  // for a secret file
  Fd to_descriptor() const;    // close-on-exec; a launcher passes it on by SpawnRequest::inherited. A sealed
                               // memfd, or a nameless file where memfds are forbidden
  // Takes the same time wherever the first difference is.
  friend bool operator==(const Secret& a, const Secret& b);

 private:
  Secret() = default;
  std::array<std::byte, BYTES> bytes_{};
};

}  // namespace lockstep

#include "lockstep/os/secret.h"

#include <fcntl.h>
#include <string.h>  // NOLINT(modernize-deprecated-headers): explicit_bzero is not in <cstring>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/os/kernel_features.h"

namespace lockstep {
namespace {

// One byte too many, so that a longer text is noticed.
constexpr std::size_t MOST_TEXT = 2 * Secret::BYTES + 2;

// A text whose memory is overwritten on destruction.
struct Text {
  std::array<char, MOST_TEXT> bytes{};
  std::size_t size = 0;

  Text() = default;
  Text(const Text&) = delete;
  Text& operator=(const Text&) = delete;
  ~Text() { explicit_bzero(bytes.data(), bytes.size()); }
  std::string_view view() const { return {bytes.data(), size}; }
};

int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Used where memory files are forbidden. /dev/shm comes first, because its files are in memory.
Fd file_without_name() {
  for (const char* folder : {"/dev/shm", "/tmp"}) {
    Fd file(open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC | O_EXCL, S_IRUSR | S_IWUSR));
    if (file.valid()) return file;
  }
  return {};
}

void read_text(int fd, const std::string& origin, Text& text) {
  const bool has_start = lseek(fd, 0, SEEK_CUR) >= 0;
  while (text.size < MOST_TEXT) {
    char* const to = text.bytes.data() + text.size;
    const ssize_t got = has_start ? pread(fd, to, MOST_TEXT - text.size, static_cast<off_t>(text.size))
                                  : read(fd, to, MOST_TEXT - text.size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw InvalidArgument(str(origin, " cannot be read: ", strerror(errno)));
    if (got == 0) return;
    text.size += static_cast<std::size_t>(got);
  }
}

}  // namespace

Secret::~Secret() { explicit_bzero(bytes_.data(), bytes_.size()); }

Secret Secret::random() {
  Secret secret;
  if (getrandom(secret.bytes_.data(), BYTES, 0) != static_cast<ssize_t>(BYTES)) {
    throw SystemError("cannot get random bytes", errno);
  }
  return secret;
}

Secret Secret::from_text(std::string_view text, const std::string& origin) {
  const auto fits = [](std::size_t size) { return size == BYTES || size == 2 * BYTES; };
  if (!fits(text.size()) && !text.empty() && text.back() == '\n') text.remove_suffix(1);
  Secret secret;
  bool valid = fits(text.size());
  for (std::size_t i = 0; valid && i < BYTES; ++i) {
    if (text.size() == BYTES) {
      secret.bytes_[i] = static_cast<std::byte>(text[i]);
      continue;
    }
    const int high = digit(text[2 * i]);
    const int low = digit(text[2 * i + 1]);
    valid = high >= 0 && low >= 0;
    secret.bytes_[i] = static_cast<std::byte>(high * 16 + low);
  }
  if (!valid) {
    throw InvalidArgument(origin + " does not hold a secret: 32 bytes, or 64 hexadecimal digits, are needed");
  }
  return secret;
}

Secret Secret::from_file(const std::string& path) {
  const std::string origin = str("secret file ", printable(path));
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!file.valid()) throw InvalidArgument(str(origin, " cannot be opened: ", strerror(errno)));
  struct stat status = {};
  if (fstat(file.get(), &status) != 0) throw SystemError(origin, errno);
  if (!S_ISREG(status.st_mode)) throw InvalidArgument(origin + " is refused: it is not a regular file");
  if (status.st_uid != geteuid()) {
    throw InvalidArgument(str(origin, " is refused: it belongs to user ", status.st_uid,
                              ", not to this user (", geteuid(), ")"));
  }
  if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    throw InvalidArgument(
        str(origin, " is refused: others may read or write it; type: chmod 600 ", printable(path)));
  }
  Text text;
  read_text(file.get(), origin, text);
  return from_text(text.view(), origin);
}

Secret Secret::from_descriptor(int fd) {
  const std::string origin = str("descriptor ", fd, " (LOCKSTEP_SECRET_FD)");
  if (fcntl(fd, F_GETFD) < 0) {
    throw InvalidArgument(
        origin + " is not open in this process; only processes that the launcher starts itself inherit it");
  }
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  Text text;
  read_text(fd, origin, text);
  return from_text(text.view(), origin);
}

std::string Secret::raw() const { return {reinterpret_cast<const char*>(bytes_.data()), BYTES}; }

std::string Secret::as_hex() const {
  std::string text;
  for (const std::byte byte : bytes_) {
    text += "0123456789abcdef"[std::to_integer<unsigned>(byte) >> 4U];
    text += "0123456789abcdef"[std::to_integer<unsigned>(byte) & 0xfU];
  }
  return text;
}

Fd Secret::to_descriptor() const {
  Fd file(kernel_has(KernelFeature::MEMFD) ? memfd_create("lockstep-secret", MFD_CLOEXEC | MFD_ALLOW_SEALING)
                                           : -1);
  if (!file.valid()) file = file_without_name();
  if (!file.valid()) throw SystemError("cannot make a memory file for the secret", errno);
  if (write(file.get(), bytes_.data(), BYTES) != static_cast<ssize_t>(BYTES)) {
    throw SystemError("cannot write the secret's memory file", errno);
  }
  fcntl(file.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL);
  return file;
}

bool operator==(const Secret& a, const Secret& b) {
  std::byte difference{0};
  for (std::size_t i = 0; i < Secret::BYTES; ++i) difference |= a.bytes_[i] ^ b.bytes_[i];
  return difference == std::byte{0};
}

}  // namespace lockstep

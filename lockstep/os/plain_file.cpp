#include "lockstep/os/plain_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

struct stat look_at(const Fd& file, const std::string& path) {
  struct stat status = {};
  if (fstat(file.get(), &status) != 0) throw SystemError(str("cannot inspect ", in_quotes(path)), errno);
  return status;
}

const char* kind_of(mode_t mode) {
  if (S_ISFIFO(mode)) return "a named pipe";
  if (S_ISDIR(mode)) return "a folder";
  return S_ISCHR(mode) || S_ISBLK(mode) ? "a device" : "something else";
}

}  // namespace

// O_NONBLOCK, because opening a named pipe would otherwise wait for a writer. It has no effect on regular
// files.
PlainFile::PlainFile(std::string path)
    : path_(std::move(path)), file_(open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)) {
  if (!file_.valid()) throw SystemError(str("cannot open ", in_quotes(path_)), errno);
  const mode_t mode = look_at(file_, path_).st_mode;
  if (S_ISREG(mode)) return;
  throw SystemError(str("cannot read ", in_quotes(path_), ", which is not a plain file but ", kind_of(mode)),
                    S_ISDIR(mode) ? EISDIR : EINVAL);
}

std::uint64_t PlainFile::size() const { return static_cast<std::uint64_t>(look_at(file_, path_).st_size); }

std::size_t PlainFile::read_at(std::uint64_t offset, std::span<std::byte> out) const {
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t part =
        pread(file_.get(), out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    if (part < 0 && errno == EINTR) continue;
    if (part < 0) throw SystemError(str("cannot read ", in_quotes(path_)), errno);
    if (part == 0) break;
    done += static_cast<std::size_t>(part);
  }
  return done;
}

std::string read_plain_file(const std::string& path) {
  const PlainFile file(path);
  std::string text;
  std::array<char, 65536> part{};
  for (;;) {
    const std::size_t got = file.read_at(text.size(), std::as_writable_bytes(std::span(part)));
    text.append(part.data(), got);
    if (got < part.size()) return text;
  }
}

}  // namespace lockstep

#include "lockstep/os/append_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/os/file_size_limit.h"

namespace lockstep {

AppendFile::AppendFile(std::string path, std::uint64_t keep, const std::string& who)
    : path_(std::move(path)),
      failure_(lockstep::str(who, who.empty() ? "" : ": ", "cannot write ", printable(path_))),
      file_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (keep == 0 ? O_TRUNC : 0),
                   0666)) {
  struct stat status = {};
  if (!file_.valid() || ::fstat(file_.get(), &status) != 0) throw SystemError(failure_, errno);
  size_ = static_cast<std::uint64_t>(status.st_size);
  if (size_ <= keep) return;
  if (::ftruncate(file_.get(), static_cast<off_t>(keep)) != 0) throw SystemError(failure_, errno);
  size_ = keep;
}

void AppendFile::append(std::string_view bytes) {
  const NoFileSizeSignal quiet;
  while (!bytes.empty()) {
    const ssize_t count = ::write(file_.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw SystemError(failure_, errno);
    bytes.remove_prefix(static_cast<std::size_t>(count));
    size_ += static_cast<std::uint64_t>(count);
  }
}

void AppendFile::sync() {
  while (::fsync(file_.get()) != 0)
    if (errno != EINTR) throw SystemError(failure_, errno);
}

}  // namespace lockstep

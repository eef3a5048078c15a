#include "lockstep/os/new_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/os/file_size_limit.h"

namespace lockstep {

NewFile::NewFile(std::string path, Access access, std::string called)
    : path_(std::move(path)),
      called_(called.empty() ? path_ : std::move(called)),
      file_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
                   access == Access::PRIVATE ? 0600 : 0666)) {
  if (!file_.valid()) throw SystemError(str("cannot write ", in_quotes(called_)), errno);
}

void NewFile::write(std::span<const std::byte> bytes) {
  const NoFileSizeSignal quiet;
  while (!bytes.empty()) {
    const ssize_t count = ::write(file_.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw SystemError(str("cannot write ", in_quotes(called_)), errno);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    size_ += static_cast<std::uint64_t>(count);
  }
}

void NewFile::begin_sync() noexcept {
  ::sync_file_range(file_.get(), static_cast<off_t>(syncing_), static_cast<off_t>(size_ - syncing_),
                    SYNC_FILE_RANGE_WRITE);
  syncing_ = size_;
}

void NewFile::sync() {
  while (::fsync(file_.get()) != 0)
    if (errno != EINTR) throw SystemError(str("cannot write ", in_quotes(called_)), errno);
}

}  // namespace lockstep

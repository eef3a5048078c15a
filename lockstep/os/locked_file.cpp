#include "lockstep/os/locked_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/os/file_size_limit.h"

namespace lockstep {
namespace {

bool change_lock(int fd, short type) {
  struct flock range = {};
  range.l_type = type;
  range.l_whence = SEEK_SET;
  while (fcntl(fd, F_OFD_SETLKW, &range) != 0) {
    if (errno != EINTR) return false;
  }
  return true;
}

[[noreturn]] void fail(const std::string& path, const char* what, int error) {
  throw SystemError(str("cannot ", what, " ", printable(path)), error);
}

}  // namespace

LockedFile::Guard::~Guard() { change_lock(fd_, F_UNLCK); }

LockedFile::LockedFile(const std::string& path)
    : path_(path), file_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)) {
  if (!file_.valid()) fail(path_, "open", errno);
  struct stat status = {};
  if (fstat(file_.get(), &status) != 0) fail(path_, "inspect", errno);
  if (!S_ISREG(status.st_mode)) fail(path_, "use as a regular file", EINVAL);
}

LockedFile::Guard LockedFile::lock() const {
  std::unique_lock threads(mutex_);
  if (!change_lock(file_.get(), F_WRLCK)) fail(path_, "lock", errno);
  return {std::move(threads), file_.get()};
}

std::string LockedFile::read(std::size_t limit) const {
  struct stat status = {};
  if (fstat(file_.get(), &status) != 0) fail(path_, "inspect", errno);
  if (static_cast<std::size_t>(status.st_size) > limit) fail(path_, "read", EFBIG);
  std::string bytes(static_cast<std::size_t>(status.st_size), '\0');
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t part =
        pread(file_.get(), bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
    if (part < 0 && errno == EINTR) continue;
    if (part <= 0) fail(path_, "read", part < 0 ? errno : EIO);
    done += static_cast<std::size_t>(part);
  }
  return bytes;
}

void LockedFile::write_at(std::size_t offset, const std::string& bytes) const {
  const NoFileSizeSignal quiet;
  if (ftruncate(file_.get(), static_cast<off_t>(offset)) != 0) fail(path_, "cut off", errno);
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t part =
        pwrite(file_.get(), bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
    if (part < 0 && errno == EINTR) continue;
    if (part < 0) fail(path_, "write", errno);
    done += static_cast<std::size_t>(part);
  }
}

}  // namespace lockstep

#include "lockstep/os/output_descriptor.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

#include "lockstep/base/str.h"
#include "lockstep/os/pipe.h"

namespace lockstep {

OutputDescriptor::OutputDescriptor(int shared_fd) : shared_fd_(shared_fd) {
  struct stat info {};
  if (fstat(shared_fd, &info) != 0) {
    lose(errno);
    return;
  }
  is_file_ = S_ISREG(info.st_mode);
  if (is_file_) return;  // a file never blocks, and a descriptor of its own would start at offset 0
  if (S_ISFIFO(info.st_mode) || isatty(shared_fd) == 1) {
    own_.reset(open(str("/proc/self/fd/", shared_fd).c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  }
  may_block_ = !own_.valid();
}

long OutputDescriptor::write_some(std::string_view text) {
  if (may_block_) {
    pollfd entry{shared_fd_, POLLOUT, 0};
    if (poll(&entry, 1, 0) <= 0) return 0;
    text = text.substr(0, PIPE_BUF);
  }
  return write_available(descriptor(), text);
}

void OutputDescriptor::lose(int error) {
  const bool is_full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  is_broken_ = !is_file_ && !is_full;
  error_ = error;
  taken_ = pending_.size();
}

void OutputDescriptor::append(std::string_view text) {
  if (!is_broken_) pending_.append(text);
}

void OutputDescriptor::flush() {
  while (pending() > 0 && !is_broken_) {
    const long put = write_some(std::string_view(pending_).substr(taken_));
    if (put == 0) break;
    if (put < 0) {
      lose(errno);
    } else {
      taken_ += static_cast<std::size_t>(put);
    }
  }
  if (pending() == 0 || taken_ > (1U << 20U)) {
    pending_.erase(0, taken_);
    taken_ = 0;
  }
}

bool is_same_file(int fd, int other) {
  struct stat first {};
  struct stat second {};
  return fstat(fd, &first) == 0 && fstat(other, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino && first.st_rdev == second.st_rdev;
}

}  // namespace lockstep

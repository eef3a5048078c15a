// Waits until one of several descriptors can be read or written, or a deadline passes.
//
//   PollSet wait;
//   wait.want_read(fd);
//   wait.run(deadline);
//   if (wait.is_ready(fd)) ...
#pragma once

#include <poll.h>

#include <vector>

#include "lockstep/base/deadline.h"

namespace lockstep {

// The deadline's nap in the form of poll() and epoll_wait(): rounded up; -1 if there is no deadline. The
// caller checks the deadline again after each wait.
int poll_milliseconds(const Deadline& deadline);

class PollSet {
 public:
  void want_read(int fd) { entries_.push_back({fd, POLLIN, 0}); }
  void want_write(int fd) { entries_.push_back({fd, POLLOUT, 0}); }
  void run(const Deadline& deadline);  // returns early when a signal handler ran
  bool is_ready(int fd) const;         // readable, writable, closed by the other side, or broken
  std::vector<int> ready() const;      // all ready descriptors

 private:
  std::vector<pollfd> entries_;
};

}  // namespace lockstep

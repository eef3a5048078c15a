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

// The deadline's nap as poll() and epoll_wait() take it: rounded up, -1: never. Who waits looks at the
// deadline again.
int poll_milliseconds(const Deadline& deadline);

class PollSet {
 public:
  void want_read(int fd) { entries_.push_back({fd, POLLIN, 0}); }
  void want_write(int fd) { entries_.push_back({fd, POLLOUT, 0}); }
  void run(const Deadline& deadline);  // returns early when a signal handler ran
  bool is_ready(int fd) const;         // readable, writable, closed by the other side, or broken
  std::vector<int> ready() const;      // all that are

 private:
  std::vector<pollfd> entries_;
};

}  // namespace lockstep

#include "lockstep/os/poll_set.h"

#include <algorithm>
#include <chrono>

namespace lockstep {

int poll_milliseconds(const Deadline& deadline) {
  if (deadline.is_never()) return -1;
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(deadline.nap()).count());
}

void PollSet::run(const Deadline& deadline) {
  int ready = 0;
  do {
    const Nap nap(deadline.nap());
    ready = poll(entries_.data(), entries_.size(), poll_milliseconds(deadline));
  } while (ready == 0 && !deadline.expired());
  if (ready > 0) return;
  // poll() failed, because of a signal as a rule: its results are undefined.
  for (auto& entry : entries_) entry.revents = 0;
}

std::vector<int> PollSet::ready() const {
  std::vector<int> fds;
  for (const pollfd& entry : entries_) {
    if (entry.revents != 0) fds.push_back(entry.fd);
  }
  return fds;
}

bool PollSet::is_ready(int fd) const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [&](const pollfd& entry) { return entry.fd == fd && entry.revents != 0; });
}

}  // namespace lockstep

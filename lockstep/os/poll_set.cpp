#include "lockstep/os/poll_set.h"

#include <algorithm>
#include <chrono>

namespace lockstep {

int poll_milliseconds(const Deadline& deadline) {
  constexpr std::chrono::milliseconds LONGEST = std::chrono::hours(1);
  if (deadline.is_never()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining());
  return static_cast<int>(std::min(left, LONGEST).count());
}

void PollSet::run(const Deadline& deadline) {
  if (poll(entries_.data(), entries_.size(), poll_milliseconds(deadline)) <= 0) {
    for (auto& entry : entries_) entry.revents = 0;
  }
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

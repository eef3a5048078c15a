#include "lockstep/os/poll_set.h"

#include <algorithm>
#include <chrono>

namespace lockstep {

void PollSet::run(const Deadline& deadline) {
  int timeout_ms = -1;
  if (!deadline.is_never()) {
    constexpr std::chrono::milliseconds LONGEST{3'600'000};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining());
    timeout_ms = static_cast<int>(std::min(left, LONGEST).count());
  }
  if (poll(entries_.data(), entries_.size(), timeout_ms) <= 0) {
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

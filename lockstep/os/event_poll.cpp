#include "lockstep/os/event_poll.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/os/poll_set.h"

namespace lockstep {
namespace {

constexpr std::uint64_t WAKE = std::numeric_limits<std::uint64_t>::max();

}  // namespace

EventPoll::EventPoll() : epoll_(epoll_create1(EPOLL_CLOEXEC)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!epoll_.valid() || !wake_.valid()) throw SystemError("cannot make an epoll descriptor", errno);
  add(wake_.get(), WAKE, {.read = true});
}

void EventPoll::control(int operation, int fd, std::uint64_t token, Interest interest) const {
  epoll_event event = {};
  event.events = (interest.read ? EPOLLIN : 0U) | (interest.write ? EPOLLOUT : 0U);
  event.data.u64 = token;
  if (epoll_ctl(epoll_.get(), operation, fd, &event) != 0)
    throw SystemError("cannot watch a descriptor with epoll", errno);
}

void EventPoll::add(int fd, std::uint64_t token, Interest interest) {
  control(EPOLL_CTL_ADD, fd, token, interest);
}

void EventPoll::change(int fd, std::uint64_t token, Interest interest) {
  control(EPOLL_CTL_MOD, fd, token, interest);
}

void EventPoll::remove(int fd) { control(EPOLL_CTL_DEL, fd, 0, {}); }

// Without `spin` the kernel is asked at least once, even if the deadline has passed.
std::vector<EventPoll::Event> EventPoll::wait(Deadline deadline, std::chrono::nanoseconds spin) {
  std::array<epoll_event, 64> events = {};
  int count = 0;
  const auto ask = [&](int milliseconds) {
    count = epoll_wait(epoll_.get(), events.data(), events.size(), milliseconds);
  };
  if (spin.count() > 0) {
    const Deadline patience = Deadline::in(std::min(spin, deadline.remaining()));
    do ask(0);
    while (count == 0 && !patience.expired());
  }
  bool has_slept = false;
  while (count == 0 && !(std::exchange(has_slept, true) && deadline.expired())) {
    const Nap nap(deadline.nap());
    ask(poll_milliseconds(deadline));
  }
  if (count < 0 && errno != EINTR) throw SystemError("cannot wait with epoll", errno);
  std::vector<Event> ready;
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events.at(static_cast<std::size_t>(i));
    if (event.data.u64 == WAKE) {
      eventfd_t ignored = 0;
      eventfd_read(wake_.get(), &ignored);
      continue;
    }
    ready.push_back({event.data.u64, (event.events & ~EPOLLOUT) != 0, (event.events & EPOLLOUT) != 0});
  }
  return ready;
}

void EventPoll::wake() { eventfd_write(wake_.get(), 1); }

}  // namespace lockstep

// EventPoll: one thread waits for many descriptors (epoll, level-triggered). Other threads may add, change
// and wake meanwhile.
//
//   EventPoll poll;
//   poll.add(fd, /*token=*/7, {.read = true});
//   for (const EventPoll::Event& event : poll.wait(Deadline::never()))
//     use(event.token, event.readable, event.writable);
//
// Threads: one thread at a time may call wait(); any thread may call the rest.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/os/fd.h"

namespace lockstep {

class EventPoll {
 public:
  struct Event {
    std::uint64_t token = 0;
    bool readable = false;  // or closed, or broken: the next read reports which
    bool writable = false;
  };

  struct Interest {
    bool read = false;
    bool write = false;
    bool operator==(const Interest&) const = default;
  };

  EventPoll();

  void add(int fd, std::uint64_t token, Interest interest);
  void change(int fd, std::uint64_t token, Interest interest);
  void remove(int fd);
  // Returns the descriptors that are ready. Empty at the deadline, after wake(), and after a signal handler
  // ran. Polls without sleeping for `spin` first, because waking a thread takes longer than most answers.
  std::vector<Event> wait(Deadline deadline, std::chrono::nanoseconds spin = std::chrono::nanoseconds(0));
  void wake();

 private:
  void control(int operation, int fd, std::uint64_t token, Interest interest) const;

  Fd epoll_;
  Fd wake_;
};

}  // namespace lockstep

// Signals as messages on a descriptor, for a process whose main loop polls. A launcher may use this; a
// library must not.
//
//   SignalQueue signals({SIGINT, SIGTERM, SIGCHLD});
//   ... poll signals.descriptor() ...
//   while (auto signal = signals.next()) handle(signal->number, signal->sender);
//
// While the queue lives, the calling thread has these signals blocked, and those in `held`, which are kept
// back and not reported. Children get previous_mask() instead. Signals that were ignored when the queue was
// made (nohup, a shell's background job) stay ignored.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <initializer_list>
#include <optional>

#include "lockstep/os/fd.h"

namespace lockstep {

struct ReceivedSignal {
  int number = 0;
  pid_t sender =
      0;  // SIGCHLD: the child. Several deaths may share one signal; this is then the first of them
};

class SignalQueue {
 public:
  SignalQueue(std::initializer_list<int> reported, std::initializer_list<int> held);
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;
  ~SignalQueue();  // unblocks; what arrived meanwhile and was not read is dropped, held signals too

  int descriptor() const { return queue_.get(); }
  std::optional<ReceivedSignal> next();
  const sigset_t& previous_mask() const { return previous_mask_; }

 private:
  Fd queue_;
  sigset_t previous_mask_{};
  sigset_t ours_{};  // blocked by this object
};

}  // namespace lockstep

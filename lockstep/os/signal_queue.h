// SignalQueue: signals as messages on a descriptor, for a process whose main loop polls. Only for programs
// such as the launcher: the library must not change a program's signals.
//
//   SignalQueue signals({SIGINT, SIGTERM, SIGCHLD});
//   ... poll signals.descriptor() ...
//   while (auto signal = signals.next()) handle(signal->number, signal->sender);
//
// While the queue lives, the calling thread blocks these signals. It also blocks those in `held`, which are
// not reported. Children get previous_mask() instead. Signals that were ignored when the queue was made
// (nohup, a background job of a shell) stay ignored.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <initializer_list>
#include <optional>

#include "lockstep/os/fd.h"

namespace lockstep {

struct ReceivedSignal {
  int number = 0;
  // For SIGCHLD the child. Several deaths may share one signal: then it is the first of them.
  pid_t sender = 0;
};

class SignalQueue {
 public:
  SignalQueue(std::initializer_list<int> reported, std::initializer_list<int> held);
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;
  ~SignalQueue();  // unblocks. Signals that arrived and were not read are dropped, held signals too

  int descriptor() const { return queue_.get(); }
  std::optional<ReceivedSignal> next();
  const sigset_t& previous_mask() const { return previous_mask_; }

 private:
  Fd queue_;
  sigset_t previous_mask_{};
  sigset_t ours_{};  // blocked by this object
};

}  // namespace lockstep

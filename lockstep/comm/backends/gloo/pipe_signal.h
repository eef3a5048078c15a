// Blocks SIGPIPE. Gloo's writev raises it on the calling thread when the other side has gone, and it would
// end a process that does not ignore it. For gloo/module.cpp.
//
//   const HeldPipeSignal held;  // while this thread calls Gloo; a signal that came is taken back
//   hold_pipe_signal_for_ever();                 // on a thread of the module's own
#pragma once

#include <cerrno>
#include <csignal>
#include <ctime>

namespace lockstep::gloo {

class HeldPipeSignal {
 public:
  HeldPipeSignal() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~HeldPipeSignal() {
    if (sigismember(&before_, SIGPIPE) == 1) return;
    const timespec now = {};
    while (sigtimedwait(&pipe_, nullptr, &now) == -1 && errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  HeldPipeSignal(const HeldPipeSignal&) = delete;
  HeldPipeSignal& operator=(const HeldPipeSignal&) = delete;

 private:
  sigset_t pipe_ = {};
  sigset_t before_ = {};
};

inline void hold_pipe_signal_for_ever() {
  sigset_t pipe = {};
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
}

}  // namespace lockstep::gloo

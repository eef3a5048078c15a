// AllSignalsBlocked: blocks all signals of the calling thread while it lives. Threads that are started
// meanwhile keep them blocked. So no handler of the program runs on a thread of the library, and such a
// thread takes no signal away from a signal queue.
//
//   const AllSignalsBlocked quiet;
//   std::thread worker(...);
#pragma once

#include <csignal>

namespace lockstep {

class AllSignalsBlocked {
 public:
  AllSignalsBlocked() {
    sigset_t all{};
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  AllSignalsBlocked(const AllSignalsBlocked&) = delete;
  AllSignalsBlocked& operator=(const AllSignalsBlocked&) = delete;
  ~AllSignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

}  // namespace lockstep

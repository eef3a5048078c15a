// Completion: a thread that completes the futures of works (c10d::Work::getFuture()), because DDP and its
// hooks wait for futures and nobody calls wait() on the works.
//
//   completion->add(work);       // the thread waits for it, then completes its future, which runs callbacks
//   completion->drain();         // returns when all futures added before are complete, callbacks included
//
// Order       First in, first out. The call itself has started in the caller's thread, so the order of a
//             group's calls does not depend on this thread.
// Nested      A callback may start a call and wait for its future, as PowerSGD's do. So what a callback adds
//             goes to a further thread, one for each level.
// Threads     start with the first add(). The destructor lets them end and does not wait for them. A forked
//             child has none.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <memory>

namespace lockstep::compat::torch_backend {

class GroupWork;

class Completion {
 public:
  Completion();
  Completion(const Completion&) = delete;
  Completion& operator=(const Completion&) = delete;
  ~Completion();

  void add(c10::intrusive_ptr<GroupWork> work);
  // Returns at once in a callback, which these futures may themselves be waiting for.
  void drain();

 private:
  struct Level;
  static void serve(const std::shared_ptr<Level>& level);
  static thread_local Level* own_level;  // of this thread, if it completes futures

  const std::shared_ptr<Level> first_;
};

}  // namespace lockstep::compat::torch_backend

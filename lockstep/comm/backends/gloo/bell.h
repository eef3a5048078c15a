// Bell: the lock of all lines of a mesh (mesh_streams.h), and the condition by which a thread waits for news
// of any line.
//
//   { const auto lock = bell.lock();  arrived_++; }
//   bell.ring();
//   ...
//   auto lock = bell.lock();
//   bell.wait(lock, deadline, [&] { return arrived_ > taken_; });
#pragma once

#include <condition_variable>
#include <mutex>

#include "lockstep/comm/backends/gloo/module.h"

namespace lockstep::gloo {

class Bell {
 public:
  std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }
  void ring() { rung_.notify_all(); }
  // TimePoint::max() means no deadline.
  template <class IsOver>
  void wait(std::unique_lock<std::mutex>& lock, TimePoint deadline, const IsOver& is_over) {
    if (deadline == TimePoint::max()) {
      rung_.wait(lock, is_over);
    } else {
      rung_.wait_until(lock, deadline, is_over);
    }
  }

 private:
  std::mutex mutex_;
  std::condition_variable rung_;
};

}  // namespace lockstep::gloo

// Streams of the stand-in for NCCL: a queue and a thread that does what is in it, one after the other.
//
// DeviceStreams of host memory (lockstep/comm/device_streams.h) are made of these; native_handle() is the
// Queue's address. A released queue is worked off and then ends. Nobody waits for its thread: a process exits
// even if an operation in it never ends. Threads: any.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

namespace lockstep::nccl::stand_in {

class Queue {
 public:
  static std::shared_ptr<void> make();
  // Of a live native handle, else null.
  static std::shared_ptr<Queue> find(void* native_handle);

  void push(std::function<void()> task);

 private:
  void work();
  void close();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool closed_ = false;
};

class Event {
 public:
  void complete();
  bool is_done();
  void wait();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
};

}  // namespace lockstep::nccl::stand_in

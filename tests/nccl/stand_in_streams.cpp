// See stand_in_streams.h; and the one symbol of the library that is not NCCL's.
#include "tests/nccl/stand_in_streams.h"

#include <map>
#include <thread>
#include <utility>

#include "lockstep/comm/device_streams.h"
#include "tests/nccl/stand_in_device.h"

namespace lockstep::nccl::stand_in {
namespace {

struct LiveQueues {
  std::mutex mutex;
  std::map<void*, std::shared_ptr<Queue>> by_handle;
};

LiveQueues& live_queues() {
  static auto* const instance = new LiveQueues;  // threads of the library may outlive main
  return *instance;
}

thread_local int device_of_thread = 0;

class HostStreams final : public DeviceStreams {
 public:
  DeviceType device_type() const override { return DeviceType::CPU; }
  int device_count() const override { return 1; }
  int current_device() const override { return device_of_thread; }
  void set_device(int index) override { device_of_thread = index; }

  Stream make_stream(int) override { return Queue::make(); }
  void* native_handle(const Stream& stream) override { return stream.get(); }

  DeviceStreams::Event record(const Stream& stream) override {
    auto event = std::make_shared<stand_in::Event>();
    if (stream == nullptr) {
      event->complete();
    } else {
      static_cast<Queue*>(stream.get())->push([event] { event->complete(); });
    }
    return event;
  }

  void wait(const Stream& stream, const DeviceStreams::Event& event) override {
    const auto awaited = std::static_pointer_cast<stand_in::Event>(event);
    if (stream == nullptr) {
      awaited->wait();
    } else {
      static_cast<Queue*>(stream.get())->push([awaited] { awaited->wait(); });
    }
  }

  bool is_done(const DeviceStreams::Event& event) override {
    return static_cast<stand_in::Event*>(event.get())->is_done();
  }
};

}  // namespace

std::shared_ptr<void> Queue::make() {
  auto queue = std::make_shared<Queue>();
  std::thread([queue] { queue->work(); }).detach();
  LiveQueues& live = live_queues();
  const std::lock_guard lock(live.mutex);
  live.by_handle.emplace(queue.get(), queue);
  return {queue.get(), [queue](void* handle) {
            {
              const std::lock_guard end(live_queues().mutex);
              live_queues().by_handle.erase(handle);
            }
            queue->close();
          }};
}

std::shared_ptr<Queue> Queue::find(void* native_handle) {
  LiveQueues& live = live_queues();
  const std::lock_guard lock(live.mutex);
  const auto found = live.by_handle.find(native_handle);
  return found == live.by_handle.end() ? nullptr : found->second;
}

void Queue::push(std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  tasks_.push_back(std::move(task));
  changed_.notify_one();
}

void Queue::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_one();
}

void Queue::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return closed_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    {
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
    }
    lock.lock();
  }
}

void Event::complete() {
  const std::lock_guard lock(mutex_);
  done_ = true;
  changed_.notify_all();
}

bool Event::is_done() {
  const std::lock_guard lock(mutex_);
  return done_;
}

void Event::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return done_; });
}

}  // namespace lockstep::nccl::stand_in

// The streams that the functions of this library take, unless a device's are made of them. For the process,
// never freed.
extern "C" __attribute__((visibility("default"))) lockstep::DeviceStreams* lockstep_device_streams_1() {
  static auto* const streams = new lockstep::nccl::stand_in::HostStreams;
  return lockstep::nccl::stand_in::has_device() ? nullptr : streams;
}

// DeviceStreams: the streams and events of a device, as an interface for the core, which knows no CUDA.
// tensor/ implements it with libtorch. A library under test that works on host memory brings its own
// (nccl/library.h).
//
//   DeviceStreams::Event written = streams.record(nullptr);  // after all earlier work of the caller's stream
//   streams.wait(side, written);  // `side` goes on when that is done; no thread blocks
//   nccl.all_reduce(..., streams.native_handle(side));
//   streams.wait(nullptr, streams.record(side));  // the caller's stream goes on after the all_reduce
//
// A null Stream is the caller's current one. Streams and events end with their last reference, which does not
// block. This header stands alone, so that a library opened with dlopen may implement it. Threads: any.
#pragma once

#include <cstdint>
#include <memory>

#include "lockstep/base/visibility.h"

namespace LOCKSTEP_PUBLIC lockstep {

enum class DeviceType : std::uint8_t { CPU, CUDA };

class DeviceStreams {
 public:
  using Stream = std::shared_ptr<void>;
  using Event = std::shared_ptr<void>;

  DeviceStreams() = default;
  virtual ~DeviceStreams() = default;
  DeviceStreams(const DeviceStreams&) = delete;
  DeviceStreams& operator=(const DeviceStreams&) = delete;

  // The device whose memory these streams work on. CPU: a library stands in for a device. The caller's
  // current stream is then the calling thread itself. Work on it is done when the call returns, and wait()
  // blocks the thread.
  virtual DeviceType device_type() const = 0;
  virtual int device_count() const = 0;
  // The calling thread's current device.
  virtual int current_device() const = 0;
  virtual void set_device(int index) = 0;

  virtual Stream make_stream(int device) = 0;
  virtual void* native_handle(const Stream& stream) = 0;  // cudaStream_t
  virtual Event record(const Stream& stream) = 0;
  virtual void wait(const Stream& stream, const Event& event) = 0;
  virtual bool is_done(const Event& event) = 0;
};

// Makes a device the calling thread's current one within a scope.
class OnDevice {
 public:
  OnDevice(DeviceStreams& streams, int device) : streams_(streams), before_(streams.current_device()) {
    if (before_ != device) streams_.set_device(device);
    changed_ = before_ != device;
  }
  ~OnDevice() {
    if (changed_) streams_.set_device(before_);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  DeviceStreams& streams_;
  const int before_;
  bool changed_ = false;
};

}  // namespace lockstep

#include "lockstep/tensor/cuda_streams.h"

#include <c10/core/Stream.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <memory>

#include "lockstep/comm/backends/nccl/library.h"

namespace lockstep {
namespace {

using c10::impl::VirtualGuardImpl;

class CudaStreams : public DeviceStreams {
 public:
  DeviceType device_type() const override { return DeviceType::CUDA; }
  int device_count() const override {
    return c10::impl::hasDeviceGuardImpl(c10::kCUDA) ? static_cast<int>(cuda().deviceCount()) : 0;
  }
  int current_device() const override { return cuda().getDevice().index(); }
  void set_device(int index) override { cuda().setDevice(device(index)); }

  Stream make_stream(int index) override {
    // High priority, so that gradients do not wait for the rest of backward.
    constexpr bool IS_URGENT = true;
    return std::make_shared<c10::Stream>(cuda().getStreamFromGlobalPool(device(index), IS_URGENT));
  }
  void* native_handle(const Stream& stream) override { return stream_of(stream).native_handle(); }

  Event record(const Stream& stream) override {
    const c10::Stream at = stream_of(stream);
    auto event = std::make_shared<Recorded>(at.device_index());
    cuda().record(&event->handle, at, at.device_index(), c10::EventFlag::PYTORCH_DEFAULT);
    return event;
  }
  void wait(const Stream& stream, const Event& event) override {
    cuda().block(static_cast<Recorded*>(event.get())->handle, stream_of(stream));
  }
  bool is_done(const Event& event) override {
    return cuda().queryEvent(static_cast<Recorded*>(event.get())->handle);
  }

 private:
  struct Recorded {
    explicit Recorded(c10::DeviceIndex index) : device(index) {}
    ~Recorded() {
      if (handle != nullptr) cuda().destroyEvent(handle, device);
    }
    Recorded(const Recorded&) = delete;
    Recorded& operator=(const Recorded&) = delete;

    void* handle = nullptr;
    const c10::DeviceIndex device;
  };

  static VirtualGuardImpl cuda() { return VirtualGuardImpl(c10::kCUDA); }
  static c10::Device device(int index) { return {c10::kCUDA, static_cast<c10::DeviceIndex>(index)}; }
  static c10::Stream stream_of(const Stream& stream) {
    return stream ? *static_cast<const c10::Stream*>(stream.get()) : cuda().getStream(cuda().getDevice());
  }
};

}  // namespace

bool offer_cuda_streams() {
  static auto* const streams = new CudaStreams;  // outlives static destructors, as groups do
  nccl::offer_streams(streams);
  return true;
}

}  // namespace lockstep

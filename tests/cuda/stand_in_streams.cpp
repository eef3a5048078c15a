// Devices, streams and events of the stand-in for CUDA, as libtorch sees them. Streams are queues of NCCL's
// stand-in, each with a thread; stream 0 of a device is its default one.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <dlfcn.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <vector>

#include "tests/cuda/launch.h"
#include "tests/cuda/stand_in.h"
#include "tests/cuda/stand_in_memory.h"

namespace lockstep::cuda_stand_in {
namespace {

using nccl::stand_in::DeviceEngine;
using nccl::stand_in::UseDevice;

constexpr int POOL = 8;  // streams of each device beside its default one

DeviceEngine open_engine() {
  void* const library = dlopen(LOCKSTEP_NCCL_STAND_IN, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  void* const symbol = library == nullptr ? nullptr : dlsym(library, nccl::stand_in::USE_DEVICE);
  if (symbol == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    std::abort();
  }
  return reinterpret_cast<UseDevice*>(symbol)(device_range());
}

const DeviceEngine& engine() {
  static const DeviceEngine opened = open_engine();
  return opened;
}

// Streams by device and number, made when they are first asked for: in the process that uses them.
class Streams {
 public:
  DeviceStreams::Stream queue(const c10::Stream& stream) {
    const std::lock_guard lock(mutex_);
    auto& of_device = queues_.at(static_cast<std::size_t>(stream.device_index()));
    auto& place = of_device.at(static_cast<std::size_t>(stream.id()));
    if (place == nullptr) place = engine().streams->make_stream(stream.device_index());
    return place;
  }

  bool has(const c10::Stream& stream) {
    const std::lock_guard lock(mutex_);
    const auto& of_device = queues_.at(static_cast<std::size_t>(stream.device_index()));
    return of_device.at(static_cast<std::size_t>(stream.id())) != nullptr;
  }

  c10::StreamId next(c10::DeviceIndex device) {
    const std::lock_guard lock(mutex_);
    return 1 + next_.at(static_cast<std::size_t>(device))++ % POOL;
  }

  // On which nothing of a program runs: it waits for others.
  DeviceStreams::Stream reaper() {
    const std::lock_guard lock(mutex_);
    if (reaper_ == nullptr) reaper_ = engine().streams->make_stream(0);
    return reaper_;
  }

 private:
  std::mutex mutex_;
  std::array<std::array<DeviceStreams::Stream, 1 + POOL>, DEVICES> queues_;
  std::array<int, DEVICES> next_{};
  DeviceStreams::Stream reaper_;
};

Streams& streams() {
  static auto* const instance = new Streams;  // threads outlive main
  return *instance;
}

struct OfThread {
  c10::DeviceIndex device = 0;
  std::array<c10::StreamId, DEVICES> streams{};
};
thread_local OfThread of_thread;

DeviceStreams::Event record_on(const c10::Stream& stream) {
  return engine().streams->record(streams().queue(stream));
}

void wait_for(const c10::Stream& stream) { engine().streams->wait(nullptr, record_on(stream)); }

struct Recorded {
  DeviceStreams::Event event;
};

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::kCUDA; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return {c10::kCUDA, of_thread.device}; }
  void setDevice(c10::Device device) const override {
    TORCH_CHECK(device.is_cuda() && device.index() < DEVICES, "there is no ", device);
    of_thread.device = device.index();
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override { of_thread.device = device.index(); }
  c10::DeviceIndex deviceCount() const noexcept override { return DEVICES; }

  c10::Stream getStream(c10::Device device) const override { return current_stream(index_of(device)); }
  c10::Stream getDefaultStream(c10::Device device) const override { return stream(index_of(device), 0); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return stream(index_of(device), streams().next(index_of(device)));
  }
  c10::Stream getNewStream(c10::Device device, int) const override {
    return getStreamFromGlobalPool(device, false);
  }
  c10::Stream exchangeStream(c10::Stream to) const override {
    const c10::Stream before = current_stream(to.device_index());
    of_thread.streams.at(static_cast<std::size_t>(to.device_index())) = to.id();
    return before;
  }
  void* getStreamNativeHandle(const c10::Stream of) const override {
    return engine().streams->native_handle(streams().queue(of));
  }
  bool queryStream(const c10::Stream& of) const override { return engine().streams->is_done(record_on(of)); }
  void synchronizeStream(const c10::Stream& of) const override { wait_for(of); }
  void synchronizeDevice(c10::DeviceIndex device) const override {
    for (c10::StreamId id = 0; id <= POOL; ++id) {
      if (streams().has(stream(device, id))) wait_for(stream(device, id));
    }
  }

  void record(void** event, const c10::Stream& on, c10::DeviceIndex, c10::EventFlag) const override {
    if (*event == nullptr) *event = new Recorded;
    static_cast<Recorded*>(*event)->event = record_on(on);
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr)
      engine().streams->wait(streams().queue(stream), static_cast<Recorded*>(event)->event);
  }
  bool queryEvent(void* event) const override {
    return event == nullptr || engine().streams->is_done(static_cast<Recorded*>(event)->event);
  }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) engine().streams->wait(nullptr, static_cast<Recorded*>(event)->event);
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<Recorded*>(event);
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& on) const override {
    record_use(data, on);
  }

 private:
  static c10::DeviceIndex index_of(c10::Device device) {
    return device.has_index() ? device.index() : of_thread.device;
  }
  static c10::Stream stream(c10::DeviceIndex device, c10::StreamId id) {
    return c10::Stream(c10::Stream::UNSAFE, {c10::kCUDA, device}, id);
  }
};

// That there is CUDA; libtorch asks before it thinks of streams in backward.
struct CudaStandInHooks final : at::CUDAHooksInterface {
  explicit CudaStandInHooks(at::CUDAHooksArgs) {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex current_device() const override { return of_thread.device; }
  at::Allocator* getPinnedMemoryAllocator() const override { return &pinned_memory(); }
  bool isPinnedPtr(const void* address) const override { return is_pinned(address); }
  void init() const override {}
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    return at::detail::getDefaultCPUGenerator();
  }
  int getNumGPUs() const override { return 0; }  // that have generators of random numbers
};

}  // namespace

c10::DeviceIndex current_device() { return of_thread.device; }

c10::Stream current_stream(c10::DeviceIndex device) {
  return c10::Stream(c10::Stream::UNSAFE, {c10::kCUDA, device},
                     of_thread.streams.at(static_cast<std::size_t>(device)));
}

// Kernels that nobody waited for need libtorch, so they end before it does.
void finish_at_exit() {
  at::globalContext();  // made before, so it goes after
  std::atexit([] {
    const Guard guard;
    for (c10::DeviceIndex device = 0; device < DEVICES; ++device) guard.synchronizeDevice(device);
  });
}

void launch(std::function<void()> kernel) {
  static std::once_flag is_first;
  std::call_once(is_first, finish_at_exit);
  const DeviceStreams::Stream queue = streams().queue(current_stream(of_thread.device));
  engine().push(engine().streams->native_handle(queue), std::move(kernel));
}

void wait_for_current_stream() { wait_for(current_stream(of_thread.device)); }

void when_done(const std::vector<c10::Stream>& used, std::function<void()> done) {
  const DeviceStreams::Stream reaper = streams().reaper();
  for (const c10::Stream& stream : used) engine().streams->wait(reaper, record_on(stream));
  engine().push(engine().streams->native_handle(reaper), std::move(done));
}

C10_REGISTER_GUARD_IMPL(CUDA, Guard);

// Before main, so that NCCL's stand-in knows of the device when the first group is made.
[[maybe_unused]] static const DeviceEngine& opened = engine();

}  // namespace lockstep::cuda_stand_in

void lockstep::cuda_tests::launch(std::function<void()> work) { cuda_stand_in::launch(std::move(work)); }

using lockstep::cuda_stand_in::CudaStandInHooks;
namespace at {
C10_REGISTER_CLASS(CUDAHooksRegistry, CUDAHooks, CudaStandInHooks)
}  // namespace at

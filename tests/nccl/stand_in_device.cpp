// See stand_in_device.h.
#include "tests/nccl/stand_in_device.h"

#include <utility>

#include "tests/nccl/stand_in_streams.h"

extern "C" __attribute__((visibility("default"))) lockstep::DeviceStreams* lockstep_device_streams_1();

namespace lockstep::nccl::stand_in {
namespace {

DeviceMemory device;  // set once, before there are other threads

void push(void* native_handle, std::function<void()> task) {
  Queue::find(native_handle)->push(std::move(task));
}

}  // namespace

char* memory_of(const void* address) {
  const char* const at = static_cast<const char*>(address);
  const bool is_device = at != nullptr && at >= device.begin && at < device.end;
  return const_cast<char*>(is_device ? at + device.to_memory : at);  // NOLINT: NCCL's types
}

bool has_device() { return device.begin != nullptr; }

extern "C" __attribute__((visibility("default"))) DeviceEngine lockstep_stand_in_use_device_1(
    DeviceMemory memory) {
  DeviceStreams* const streams = lockstep_device_streams_1();
  device = memory;
  return {streams, push};
}

}  // namespace lockstep::nccl::stand_in

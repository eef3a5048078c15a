// A device that libtorch sees (tests/cuda) uses the stand-in for NCCL: its memory is not where the host may
// touch it, and its streams are queues of the stand-in.
//
//   auto* use = reinterpret_cast<UseDevice*>(dlsym(library, USE_DEVICE));
//   const DeviceEngine engine = use({begin, end, offset_of_the_memory_itself});
//   engine.push(engine.streams->native_handle(stream), [] { ...a kernel... });
//
// From then on lockstep_device_streams_1() has none, so that Lockstep takes libtorch's
// (tensor/cuda_streams.h), as with NCCL itself. Must be called before the first communicator is made.
#pragma once

#include <cstddef>
#include <functional>

#include "lockstep/comm/device_streams.h"

namespace lockstep::nccl::stand_in {

// Addresses of the device, and how far from each the memory is that it stands for.
struct DeviceMemory {
  const char* begin = nullptr;
  const char* end = nullptr;
  std::ptrdiff_t to_memory = 0;
};

struct DeviceEngine {
  DeviceStreams* streams;
  void (*push)(void* native_handle, std::function<void()> task);
};

using UseDevice = DeviceEngine(DeviceMemory memory);
inline constexpr const char* USE_DEVICE = "lockstep_stand_in_use_device_1";

// Of an address that NCCL is given: itself, if it is none of the device.
char* memory_of(const void* address);
bool has_device();

}  // namespace lockstep::nccl::stand_in

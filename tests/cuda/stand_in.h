// A stand-in for CUDA: four devices "cuda:0" to "cuda:3" in a libtorch without CUDA, for tests of what
// Lockstep does on a GPU, on machines without one. It is there in every program that links this library or is
// started with it in LD_PRELOAD; backend nccl then works over the stand-in of tests/nccl, which LOCKSTEP_NCCL
// names.
//
//   at::Tensor x = at::ones({2}, at::Device(at::kCUDA, 0));      // in device memory
//   x.add_(1);                                                   // a kernel: on the current stream, later
//   x.cpu();                                                     // waits for the stream
//
// As CUDA:
//   * Device memory has addresses at which the host may neither read nor write: who tries is killed by
//     SIGSEGV.
//   * A kernel that only writes what is there already (`add_`, `copy_`, `..._out`, and with libtorch's
//     structured operators nearly all) is launched: it runs later, on the thread of its stream, behind what
//     was launched there before. NCCL's calls and kernels of other streams run at the same time, unless an
//     event is waited for.
//   * Memory that is freed is filled with NaN (bytes 0xff) behind what its streams have under way, as if
//     somebody else had it then: the stream that was current when it was taken, and those of
//     record_stream().
//   * Backward runs on a thread of the device, with the streams of forward. Autocast and gradient scalers
//     take it for CUDA.
// As no CUDA: the kernels are those of the CPU; a kernel whose result must be allocated runs at once, behind
// its stream. Other devices' memory may be read. Pinned memory is that of the CPU. No graphs, no random
// numbers of its own (the CPU's generator).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <functional>
#include <vector>

namespace lockstep::cuda_stand_in {

inline constexpr int DEVICES = 4;

// ---- memory (stand_in_memory.cpp)

// What stands behind an address of a device: there a kernel reads and writes.
char* memory_of(const void* address);

// ---- streams (stand_in_streams.cpp)

// Runs `kernel` on the stream that is current for the calling thread, behind what is there.
void launch(std::function<void()> kernel);
// Waits until everything on that stream is done.
void wait_for_current_stream();

// For stand_in_memory.cpp: calls `done` once everything that is on these streams now is done; does not wait.
void when_done(const std::vector<c10::Stream>& streams, std::function<void()> done);
c10::Stream current_stream(c10::DeviceIndex device);
c10::DeviceIndex current_device();

}  // namespace lockstep::cuda_stand_in

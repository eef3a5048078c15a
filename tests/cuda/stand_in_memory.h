// For the other files of the stand-in for CUDA: where its memory is.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>

#include "tests/nccl/stand_in_device.h"

namespace lockstep::cuda_stand_in {

using DeviceRange = nccl::stand_in::DeviceMemory;

DeviceRange device_range();
// Host memory that counts as pinned.
c10::Allocator& pinned_memory();
bool is_pinned(const void* address);
// record_stream()
void record_use(const c10::DataPtr& data, const c10::Stream& stream);

}  // namespace lockstep::cuda_stand_in

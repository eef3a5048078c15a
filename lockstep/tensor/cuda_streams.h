// Streams and events of libtorch's CUDA, for backend nccl. They are used through c10's device-generic
// interface, so that the build needs nothing of CUDA (c10/core/impl/VirtualGuardImpl.h;
// Stream::native_handle(), libtorch 2.11).
//
//   offer_cuda_streams();            // once per program, before main: tensor_call.cpp does it
#pragma once

namespace lockstep {

// Returns true. Whether there is CUDA is determined when a group over NCCL is made.
bool offer_cuda_streams();

}  // namespace lockstep

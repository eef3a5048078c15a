// launch(): work of the host in line with a stream of the GPU, for tests of who waits for what. On a GPU it
// is cudaLaunchHostFunc() (on_gpu.cpp); the stand-in for CUDA has its own (stand_in_streams.cpp).
//
//   std::promise<void> may_go_on;
//   launch([wait = may_go_on.get_future().share()] { wait.wait(); });
//   x.add_(1);              // not before may_go_on.set_value()
#pragma once

#include <functional>

namespace lockstep::cuda_tests {

// Runs `work` on the stream that is current for the calling thread, behind what is there. It may not call
// CUDA.
void launch(std::function<void()> work);

}  // namespace lockstep::cuda_tests

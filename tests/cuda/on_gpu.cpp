#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <memory>
#include <utility>

#include "tests/cuda/launch.h"

namespace lockstep::cuda_tests {

void launch(std::function<void()> work) {
  using HostFunction = void (*)(void*);
  using LaunchHostFunction = int (*)(void* stream, HostFunction function, void* argument);
  static const auto launch_host_function =
      reinterpret_cast<LaunchHostFunction>(dlsym(RTLD_DEFAULT, "cudaLaunchHostFunc"));  // NOLINT
  TORCH_CHECK(launch_host_function != nullptr, "this program has no cudaLaunchHostFunc");
  const c10::impl::VirtualGuardImpl cuda(c10::kCUDA);
  auto argument = std::make_unique<std::function<void()>>(std::move(work));
  const int error = launch_host_function(
      cuda.getStream(cuda.getDevice()).native_handle(),
      [](void* of) { (*std::unique_ptr<std::function<void()>>(static_cast<std::function<void()>*>(of)))(); },
      argument.get());
  TORCH_CHECK(error == 0, "cudaLaunchHostFunc: CUDA's error ", error);
  (void)argument.release();
}

}  // namespace lockstep::cuda_tests

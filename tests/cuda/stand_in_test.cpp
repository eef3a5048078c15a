// What holds of the stand-in for CUDA alone: else tests over it would show nothing.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstring>
#include <future>
#include <thread>

#include "testing/ranks.h"
#include "tests/cuda/stand_in.h"
#include "tests/cuda/training.h"

namespace lockstep::cuda_stand_in {
namespace {

// A block that is freed belongs to somebody else once its own stream is there; record_stream() names others
// that use it.
RANKS_TEST(CudaStandIn, FreedMemoryIsFilled, Ranks(1), Backends("nccl")) {
  const c10::impl::VirtualGuardImpl cuda(at::kCUDA);
  const at::Device gpu = cuda_tests::gpu_of(world());
  for (const bool is_recorded : {false, true}) {
    at::Tensor x = at::ones({1000}, gpu);
    const at::Tensor copy = at::empty({1000}, gpu);
    cuda.synchronizeStream(cuda.getStream(gpu));
    const c10::Stream side = cuda.getStreamFromGlobalPool(gpu);
    const c10::Stream usual = cuda.exchangeStream(side);
    if (is_recorded) x.record_stream(side);
    std::promise<void> may_go_on;
    const auto* const memory = reinterpret_cast<const float*>(memory_of(x.data_ptr()));
    launch([to = memory_of(copy.data_ptr()), memory, wait = may_go_on.get_future().share()] {
      wait.wait();
      std::memcpy(to, memory, 1000 * sizeof(float));
    });
    cuda.exchangeStream(usual);
    x.reset();
    const volatile float& first = *memory;
    while (!is_recorded && first == 1) std::this_thread::yield();
    may_go_on.set_value();
    cuda.synchronizeStream(side);
    EXPECT_EQ(copy.cpu().equal(at::ones({1000})), is_recorded);
  }
}

TEST(CudaStandInDeath, TheHostMayNotTouchItsMemory) {
  EXPECT_EXIT(
      {
        const at::Tensor x = at::zeros({2}, at::Device(at::kCUDA, 0));
        std::printf("%g", *static_cast<const float*>(x.const_data_ptr()));
      },
      ::testing::KilledBySignal(SIGSEGV), "");
}

}  // namespace
}  // namespace lockstep::cuda_stand_in

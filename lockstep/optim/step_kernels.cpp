#include "lockstep/optim/step_kernels.h"

#include <algorithm>

#include "lockstep/optim/step_kernels_table.h"

namespace lockstep::optim {
namespace {

#ifdef __x86_64__
// Where there is AVX-512. A step that does hardly more than move memory moves it faster in parts of 32 bytes:
// on AMD EPYC 25 million float32 parameters take 7.3 instead of 8.1 ms, medians of seven runs in turn.
void widest_sgd(DType dtype, const SgdCoefficients& c, const StepBuffers& buffers, std::size_t count) {
  const bool only_moves = !c.has_momentum && size_of(dtype) >= sizeof(float);
  const StepKernels& kernels = only_moves ? step_kernels_avx2::kernels() : step_kernels_avx512::kernels();
  kernels.sgd(dtype, c, buffers, count);
}
#endif

StepKernels best_step_kernels() {
  const auto all = runnable_step_kernels();
  const auto widest =
      std::find_if(all.rbegin(), all.rend(), [](const StepKernels* k) { return k != nullptr; });
  StepKernels best = **widest;
#ifdef __x86_64__
  if (*widest == &step_kernels_avx512::kernels()) best.sgd = &widest_sgd;
#endif
  return best;
}

}  // namespace

std::array<const StepKernels*, 3> runnable_step_kernels() {
  std::array<const StepKernels*, 3> found = {&step_kernels_baseline::kernels(), nullptr, nullptr};
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx2") != 0) found[1] = &step_kernels_avx2::kernels();
  if (__builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
      __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512dq") != 0) {
    found[2] = &step_kernels_avx512::kernels();
  }
#endif
  return found;
}

const StepKernels& step_kernels() {
  static const StepKernels best = best_step_kernels();
  return best;
}

bool has_step_kernels(DType dtype) { return is_floating(dtype); }

}  // namespace lockstep::optim

#include "lockstep/optim/step_kernels.h"

#include "lockstep/optim/step_kernels_table.h"

namespace lockstep::optim {

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
  static const StepKernels* const best = [] {
    const StepKernels* last = &step_kernels_baseline::kernels();
    for (const StepKernels* kernels : runnable_step_kernels()) last = kernels != nullptr ? kernels : last;
    return last;
  }();
  return *best;
}

bool has_step_kernels(DType dtype) { return is_floating(dtype); }

}  // namespace lockstep::optim

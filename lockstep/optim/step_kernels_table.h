// The instruction sets the step kernels are compiled for; see step_kernels_body.h.
#pragma once

#include "lockstep/optim/step_kernels.h"

namespace lockstep {

namespace step_kernels_baseline {
const optim::StepKernels& kernels();
}
namespace step_kernels_avx2 {
const optim::StepKernels& kernels();
}
namespace step_kernels_avx512 {
const optim::StepKernels& kernels();
}

}  // namespace lockstep

#define LOCKSTEP_KERNELS step_kernels_avx2
#include "lockstep/optim/step_kernels_body.h"  // IWYU pragma: keep

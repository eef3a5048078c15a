#define LOCKSTEP_KERNELS step_kernels_baseline
#include "lockstep/optim/step_kernels_body.h"  // IWYU pragma: keep

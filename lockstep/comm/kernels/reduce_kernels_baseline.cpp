#define LOCKSTEP_KERNELS kernels_baseline
#include "lockstep/comm/kernels/reduce_kernels_body.h"  // IWYU pragma: keep

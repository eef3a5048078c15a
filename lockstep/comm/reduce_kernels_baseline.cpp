#define LOCKSTEP_KERNELS kernels_baseline
#include "lockstep/comm/reduce_kernels_body.h"  // IWYU pragma: keep

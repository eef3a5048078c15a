#define LOCKSTEP_KERNELS kernels_avx2
#include "lockstep/comm/reduce_kernels_body.h"  // IWYU pragma: keep

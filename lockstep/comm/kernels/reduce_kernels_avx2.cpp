#define LOCKSTEP_KERNELS kernels_avx2
#include "lockstep/comm/kernels/reduce_kernels_body.h"  // IWYU pragma: keep

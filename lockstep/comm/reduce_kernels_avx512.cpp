#define LOCKSTEP_KERNELS kernels_avx512
#include "lockstep/comm/reduce_kernels_body.h"  // IWYU pragma: keep

// The name of DistributedDataParallel in errors.
#pragma once

#include "lockstep/parallel/wrapper.h"

namespace lockstep {

inline constexpr Wrapper DDP_WRAPPER{"DistributedDataParallel"};

}  // namespace lockstep

// The name under which ShardedDataParallel speaks in errors.
#pragma once

#include "lockstep/parallel/wrapper.h"

namespace lockstep {

inline constexpr Wrapper ZERO_WRAPPER{"ShardedDataParallel"};

}  // namespace lockstep

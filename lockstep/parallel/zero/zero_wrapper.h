// The name of ShardedDataParallel in errors.
#pragma once

#include "lockstep/parallel/wrapper.h"

namespace lockstep {

inline constexpr Wrapper ZERO_WRAPPER{"ShardedDataParallel"};

}  // namespace lockstep

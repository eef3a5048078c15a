// Calls to record or to compare in a test.
#pragma once

#include <cstdint>

#include "lockstep/comm/call.h"

namespace lockstep::harness {

inline Call sum_of(std::uint64_t count) {
  return {Verb::ALL_REDUCE, DType::FLOAT32, ReduceOp::SUM, Purpose::PROGRAM, 0, count};
}

}  // namespace lockstep::harness

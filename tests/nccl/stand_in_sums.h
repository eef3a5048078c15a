// The arithmetic of the stand-in for NCCL: contributions of all ranks, combined in a balanced tree over the
// ranks, neighbours first, as Lockstep does, so that tests can compare bits. NCCL itself has orders of its
// own.
//
//   combine(FLOAT16, SUM, {of_rank_0, of_rank_1, of_rank_2}, result, count);      // (0 + 1) + 2
//
// Integers wrap round, and AVG of them is the quotient of that sum, towards zero, as NCCL has it. float16 and
// bfloat16 are added up in float32 and rounded once, to nearest, ties to even; AVG divides the sum once.
// (NCCL rounds at each hop of its ring, and multiplies by 1/size first, so its last bits may differ.) MAX and
// MIN prefer a number to a NaN.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/comm/backends/nccl/api.h"

namespace lockstep::nccl::stand_in {

std::size_t element_size(DataType type);  // 0: no such type

// `result` may be one of the contributions.
void combine(DataType type, RedOp op, const std::vector<const char*>& contributions, char* result,
             std::size_t count);

}  // namespace lockstep::nccl::stand_in

// Call: what a rank called, as the others are told of it. Ranks whose calls with one sequence number do not agree are told
// both, in these words, whatever the backend.
//
//   if (!agree(mine, theirs)) fail("rank 0 called " + describe(mine) + ", rank 1 called " + describe(theirs));
//   // rank 0 called all_reduce(float32[10], sum), rank 1 called broadcast(float32[10], root 0)
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/base/dtype.h"
#include "lockstep/comm/backend.h"

namespace lockstep {

struct Call {
  Verb verb = Verb::BARRIER;
  DType dtype = DType::UINT8;
  ReduceOp op = ReduceOp::SUM;
  std::int32_t root = 0;
  std::uint64_t count = 0;
};

Call call_of(const Request& request);
std::string describe(const Call& call);
// Whether the two belong together. Counts are compared where the verb wants equal ones; sizes that belong to a pair of ranks
// (Request) are the backend's to check.
bool agree(const Call& a, const Call& b);

}  // namespace lockstep

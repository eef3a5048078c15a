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
inline bool agree(const Call& a, const Call& b) {
  const bool equal_counts = a.verb == Verb::BROADCAST || a.verb == Verb::ALL_REDUCE || a.verb == Verb::REDUCE;
  return a.verb == b.verb && a.dtype == b.dtype && a.op == b.op && a.root == b.root &&
         (a.count == b.count || !equal_counts);
}

}  // namespace lockstep

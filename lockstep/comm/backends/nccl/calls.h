// Translates a request into calls of NCCL: first a table, which is then executed. Pure.
//
//   const std::vector<nccl::Step> steps = nccl::steps_of(request, rank, size);     // throws nothing
//   if (const std::string why = nccl::lacks(request.verb, request.dtype, request.op); !why.empty())
//     refuse(why);
//
//   all_reduce(float32[10], sum)      ALL_REDUCE  FLOAT32 x 10
//   all_gather(int16[5])              ALL_GATHER UINT8 x 10, or, into a list of outputs, a BROADCAST of each
//                                     rank
//   all_to_all, gather, scatter       SEND and RECV, also to this rank itself
//   reduce_scatter                    REDUCE_SCATTER, or, from a list of inputs, a REDUCE to each rank
//
// Verbs that only copy send bytes, so they serve all dtypes. A reduction that NCCL lacks (int16, bits, ...)
// is refused before anything is sent. NCCL fixes the order of its sums. Bits may differ from those of other
// backends, and from one version of NCCL to the next.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/backend.h"
#include "lockstep/comm/backends/nccl/library.h"

namespace lockstep::nccl {

struct Step {
  enum class Kind { ALL_REDUCE, BROADCAST, REDUCE, ALL_GATHER, REDUCE_SCATTER, SEND, RECV };
  Kind kind = Kind::ALL_REDUCE;
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;
  DataType type = UINT8;
  RedOp op = SUM;
  int rank = 0;  // the root or the peer
};

// How NCCL reduces the request: `per_element` elements of `type` for each of ours. Nothing if it cannot.
struct Reduction {
  DataType type = FLOAT32;
  RedOp op = SUM;
  std::size_t per_element = 1;
};
std::optional<Reduction> reduction_of(DType dtype, ReduceOp op);

std::string lacks(const Request& request);  // the reason why NCCL cannot do it; empty if it can

// All ranks get the same number of steps of the same kinds, except for steps to single ranks. Empty: there is
// nothing to do.
std::vector<Step> steps_of(const Request& request, int rank, int size);

const char* name_of(Step::Kind kind);  // "ncclAllReduce"

// One call. `function` is NCCL's name for it.
struct Launched {
  Result result = SUCCESS;
  const char* function = "";
};
Launched launch(const Api& api, const Step& step, Comm comm, CudaStream stream);

}  // namespace lockstep::nccl

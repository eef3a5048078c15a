// What an engine cannot reduce and says so, where the others can: stated here once, so that the tests of
// every dtype and operator run over every backend.
//
//   if (is_lacking(group, dtype_of<T>(), op))
//     return expect_lacking([&] { comm::all_reduce(group, x.span(), op); });
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/process_group.h"

namespace lockstep {

inline bool is_lacking(const ProcessGroup& group, DType dtype, ReduceOp op) {
  if (!group.backend_name().ends_with("nccl")) return false;
  if (dtype == DType::INT16 || dtype == DType::UINT16) return true;
  if (dtype == DType::BOOL) return op == ReduceOp::BXOR;
  return op == ReduceOp::BAND || op == ReduceOp::BOR || op == ReduceOp::BXOR;
}

// Whether an all_reduce is one of sums, each rounded to its dtype: then those of half precision are not what
// this library has.
inline bool is_rounded_by_levels(const ProcessGroup& group, DType dtype) {
  return group.backend_name() == "hierarchical+nccl" && (dtype == DType::FLOAT16 || dtype == DType::BFLOAT16);
}

// Refused by name, before anything is sent: the group is none the worse.
template <typename Call> void expect_lacking(Call call) {
  EXPECT_THAT(call, ::testing::ThrowsMessage<InvalidArgument>(::testing::HasSubstr("NCCL has no ")));
}

}  // namespace lockstep

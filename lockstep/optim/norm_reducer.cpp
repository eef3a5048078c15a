#include "lockstep/optim/norm_reducer.h"

#include <utility>

#include "lockstep/comm/collectives/all_reduce.h"

namespace lockstep {

NormReducer::NormReducer(ProcessGroup group) : group_(std::move(group)) {
  group_->require_member("NormReducer");
}

void NormReducer::sum(std::span<double> values) const {
  if (group_ && !values.empty()) comm::all_reduce(*group_, values, ReduceOp::SUM);
}

void NormReducer::largest(std::span<double> values) const {
  if (group_ && !values.empty()) comm::all_reduce(*group_, values, ReduceOp::MAX);
}

}  // namespace lockstep

// What a value of each rank adds up to in a group: whether its members are together and in order is seen by the sum.
#pragma once

#include <span>

#include "lockstep/comm/collectives/all_reduce.h"
#include "lockstep/job/job.h"

namespace lockstep::harness {

inline int sum_over(const ProcessGroup& group, int value) {
  comm::all_reduce(group, std::span(&value, 1));
  return value;
}

// Of all ranks of the job: size() * (size() - 1) / 2.
inline int sum_of_ranks() { return sum_over(lockstep::world(), lockstep::get_rank()); }

}  // namespace lockstep::harness

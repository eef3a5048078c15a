// What all ranks of the job add up to: whether they are in one group and in order is seen by size() * (size() - 1) / 2.
#pragma once

#include <span>

#include "lockstep/comm/collectives/all_reduce.h"
#include "lockstep/job/job.h"

namespace lockstep::harness {

inline int sum_of_ranks() {
  int sum = lockstep::get_rank();
  comm::all_reduce(lockstep::world(), std::span(&sum, 1));
  return sum;
}

}  // namespace lockstep::harness

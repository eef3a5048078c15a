// What a value of each rank adds up to in a group: whether its members are together and in order is seen by
// the sum.
#pragma once

#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/comm/collectives/all_reduce.h"
#include "lockstep/comm/collectives/barrier.h"
#include "lockstep/job/job.h"

namespace lockstep::harness {

inline int sum_over(const ProcessGroup& group, int value) {
  comm::all_reduce(group, std::span(&value, 1));
  return value;
}

// Of all ranks of the job: size() * (size() - 1) / 2.
inline int sum_of_ranks() { return sum_over(lockstep::world(), lockstep::get_rank()); }

// What is wrong with a sum of 1001 float32, which no two ranks and no four share evenly: the error's text, or
// "".
inline std::string error_of_sum(const ProcessGroup& group) {
  std::vector<float> x(1001, 1.0F);
  try {
    comm::all_reduce(group, std::span(x));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// The same, and all ranks have it before one goes on: what a rank does next may end the group, and with it
// what another has not finished. They meet in a group that lives on.
inline std::string error_of_sum_on_all(const ProcessGroup& group) {
  const std::string error = error_of_sum(group);
  std::vector<int> everybody(static_cast<std::size_t>(group.size()));
  std::iota(everybody.begin(), everybody.end(), 0);
  const ProcessGroup apart(group.backend().split({everybody}, group.name() + "/apart", {}));
  comm::barrier(apart);
  return error;
}

}  // namespace lockstep::harness

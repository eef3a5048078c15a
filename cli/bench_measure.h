// Times one collective on this rank of the world group. Every rank calls it.
#pragma once

#include <string>

#include "cli/bench_plan.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::cli {

struct BenchSetting {
  Verb verb = Verb::ALL_REDUCE;
  bool shared = true;  // buffers from the group's shared memory
};

// In each round every rank writes new data, then a barrier, then the call. A round's time is from the last
// rank's start to the last rank's end, by the clock that all ranks of a machine share. Throws InternalError
// if a result is wrong.
BenchRow measure(const ProcessGroup& group, const BenchSetting& setting, std::size_t bytes);

}  // namespace lockstep::cli

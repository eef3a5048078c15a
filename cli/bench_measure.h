// Times one collective on this rank's side of the world group; every rank calls it.
#pragma once

#include <string>

#include "cli/bench_plan.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::cli {

struct BenchSetting {
  Verb verb = Verb::ALL_REDUCE;
  bool shared = true;  // buffers from the group's shared memory
};

// Each round: every rank writes its data anew, a barrier, the call. A round's time is from the last rank's
// start to the last rank's end, by the clock that all ranks of a machine share. Throws InternalError when a
// result is wrong.
BenchRow measure(const ProcessGroup& group, const BenchSetting& setting, std::size_t bytes);

}  // namespace lockstep::cli

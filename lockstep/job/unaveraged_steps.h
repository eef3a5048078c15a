// note_step, note_shuffled_epoch: warn once, through the log sink, if a rank of a job of several takes
// optimiser steps while nothing was averaged. The usual reason is a model that is not wrapped in
// DistributedDataParallel, so that each rank trains a model of its own.
//
//   note_step("optim::SGD");                              // called when an optimiser steps
//   note_shuffled_epoch(graphs_were_recorded);            // called by a sampler when a second epoch begins
//
// Detected    lockstep::optim's optimisers, GradScaler::step() and Apex's with any optimiser, from the
//             STEPS_TO_SAY-th step on. Also a second epoch over a shuffling DistributedSampler, if autograd
//             recorded graphs on that thread in the first one. This covers libtorch's own optimisers, which
//             have no hook for a library.
// No warning  after a collective or a message of the program's own (purpose.h), or after a
//             DistributedDataParallel has averaged, because that may be how the program averages. Metrics,
//             checksums, barriers and SyncBatchNorm do not count. Alone, and before init_process_group().
#pragma once

#include <cstdint>
#include <string_view>

#include "lockstep/base/visibility.h"

namespace LOCKSTEP_PUBLIC lockstep {

inline constexpr std::int64_t STEPS_TO_SAY = 10;

void note_step(std::string_view optimizer);
void note_shuffled_epoch(bool recorded_graphs);

}  // namespace lockstep
